"""Contingency tables in memory."""
