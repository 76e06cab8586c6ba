"""Graded labels in a trainer, with numpy and torch alone.

`lookup` reads labels, `samplers` and `precomputed` compose batches, `losses` learns from labels, `metrics` evaluates
scores, `webdataset` joins labels to shards. `reference` is a trainer made of these parts.
"""
