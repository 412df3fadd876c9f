"""Rows of all groups in one table, with the codes of their groups."""
