"""Loops over tables of classes and clusters."""
