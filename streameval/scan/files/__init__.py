"""Which files a path, a pattern, a URI or a table names."""
