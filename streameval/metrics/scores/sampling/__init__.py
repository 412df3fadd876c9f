"""Sampling errors of score metrics."""
