"""Graded labels in a trainer. Depends only on numpy and torch.

`lookup` reads labels, `samplers` and `precomputed` compose batches, `losses` learns from labels, `metrics` evaluates
scores, `webdataset` joins labels to shards. `reference` is a trainer made of these parts.
"""
