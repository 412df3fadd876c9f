"""Metrics of a cluster column."""
