"""Exports for training code: the lookup and batch plans."""
