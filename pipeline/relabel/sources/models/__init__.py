"""Transformer encoders: their files, safety checks, loading and batching."""
