"""Nights: what a store folds and merges."""
