"""Interleaved groups: the rows of all groups in one table, each with the code of its group."""
