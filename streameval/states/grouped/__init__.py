"""States split by a key."""
