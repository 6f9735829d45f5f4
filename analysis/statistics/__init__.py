"""Intervals, tests, multiplicity: pure functions on arrays."""
