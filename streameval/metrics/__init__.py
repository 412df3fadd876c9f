"""Metrics: pure functions of states. `streameval.metrics.catalogue` lists them."""
