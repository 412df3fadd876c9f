"""Results of a store: cached values, histories, judgements and diagnoses of its nights."""
