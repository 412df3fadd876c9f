"""Metrics of clusters against classes."""
