"""Metrics of a score."""
