"""Reference models, one per file. `base.py` is their contract."""
