"""States of sampled scores."""
