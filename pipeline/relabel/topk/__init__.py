"""Exact top-k search over arrays of vectors; see docs/internals/exact-search.md."""
