"""Numerical building blocks: CSR arrays, heaps, compiled functions, threads and statistics."""
