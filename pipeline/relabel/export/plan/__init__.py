"""Batch plans: a seeded list of batches with their exact blocks of relevance."""
