"""States of scores."""
