"""Parquet: row groups of a file, the pages in them, and the ranges of an object that hold them."""
