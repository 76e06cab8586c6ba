"""Exact top-k search over arrays of vectors (docs/internals/exact-search.md)."""
