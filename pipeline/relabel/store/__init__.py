"""Files on disk: whole or absent, hashed, resumable."""
