"""The machinery of exact states: sorted runs of keys with counts."""
