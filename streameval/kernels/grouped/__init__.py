"""Loops over rows of many groups."""
