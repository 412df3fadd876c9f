"""What a store computes and remembers of its nights."""
