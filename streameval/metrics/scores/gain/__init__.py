"""Areas under the gain curve: exact, within bounds, and estimated from a sample."""
