"""Calibration: whether a score can be read as a probability."""
