"""streameval."""
