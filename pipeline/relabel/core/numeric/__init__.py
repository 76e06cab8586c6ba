"""Numerical building blocks: compiled functions, threads and statistics."""
