"""Artefacts on disk: complete or absent, hashed, resumable."""
