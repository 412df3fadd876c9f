"""Nights: find, fold and merge the partitions of a store."""
