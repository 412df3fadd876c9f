"""States: immutable, mergeable, serialisable counts; and the builders that fold batches into them."""
