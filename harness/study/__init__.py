"""The promise: a study file, read strictly, checked, locked, and planned into cells."""
