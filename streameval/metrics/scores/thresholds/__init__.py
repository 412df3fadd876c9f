"""Metrics of the rows on each side of a threshold: at operating points, and at the best threshold."""
