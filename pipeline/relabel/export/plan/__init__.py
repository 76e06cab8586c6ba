"""Batch plans: the exact relevance of a seeded list of batches."""
