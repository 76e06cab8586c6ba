"""Captions of any format as one table, one row per caption."""

from relabel.corpus.table import REFERENCES, SCHEMA, SPLITS, Corpus, References

__all__ = ["REFERENCES", "SCHEMA", "SPLITS", "Corpus", "References"]
