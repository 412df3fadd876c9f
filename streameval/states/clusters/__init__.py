"""States of cluster columns."""
