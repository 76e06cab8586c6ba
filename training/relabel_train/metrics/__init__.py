"""Retrieval metrics, one a file, numpy alone."""
