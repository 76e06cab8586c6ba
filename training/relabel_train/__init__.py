"""Graded labels in a trainer: lookups, batches, losses and metrics. Depends on numpy, pyarrow and torch alone."""
