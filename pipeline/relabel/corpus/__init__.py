"""The corpus: captions of any format as one table with one row per caption."""

from relabel.corpus.table import REFERENCES, SCHEMA, SPLITS, Corpus, References

__all__ = ["REFERENCES", "SCHEMA", "SPLITS", "Corpus", "References"]
