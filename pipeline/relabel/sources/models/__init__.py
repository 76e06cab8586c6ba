"""Transformer encoders: model files, safety checks, loading and batching."""
