"""The core of exact states: counts of keys in segments that are sorted on demand."""
