"""Artefacts on disk: written atomically, hashed and resumable."""
