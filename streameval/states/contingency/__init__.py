"""States of clusters against classes."""
