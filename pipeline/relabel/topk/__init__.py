"""Exact top-k search over arrays."""
