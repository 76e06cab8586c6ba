"""Frozen values: what relabel computes, by value, and the comparison with it. See `python -m tests.golden --help`."""
