"""Events in, DuckDB out: the collector and the published snapshot."""
