"""Loops of calibration over the groups of equal score, from the best score to the worst."""
