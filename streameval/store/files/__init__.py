"""What a store keeps on disk."""
