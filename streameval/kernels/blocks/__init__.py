"""Compiled loops over units in blocks."""
