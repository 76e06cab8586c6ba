"""Exports for training code and other tools. `EXPORTS` lists the formats of other tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relabel.core.errors import UsageError, choices

if TYPE_CHECKING:
    from relabel.export.base import Export

EXPORTS = {
    "hf": ("hf", "HfExport", "Write a dataset folder with a card for Hugging Face's datasets library."),
    "pairs": ("pairs", "PairsExport", "Write scored pairs of captions for the losses of sentence-transformers."),
    "tuples": ("pairs", "TuplesExport", "Write tuples of captions for the losses of sentence-transformers."),
    "flagembedding": (
        "groups",
        "FlagEmbeddingExport",
        "Write queries, positives, negatives and scores for FlagEmbedding.",
    ),
    "tevatron": ("groups", "TevatronExport", "Write queries, positives, negatives and scores for tevatron."),
    "trec": ("trec", "TrecExport", "Write qrels and runs for trec_eval and ir_measures."),
    "faiss": ("faiss", "FaissExport", "Write faiss indexes of a label's vectors, with ids."),
    "candidates": ("candidates", "CandidatesExport", "Write pairs of images and captions for a judge to score."),
    "scan": ("scan", "ScanExport", "Write captions, ids and dense blocks for VSE-infinity, SGRAF, NAAF and CHAN."),
}
"""Module, class and help text of each format."""


def export_class(kind: str) -> type[Export[Any]]:
    """Import the class of a format."""
    if kind not in EXPORTS:
        raise UsageError(f"no format {kind!r}", hint=choices(kind, EXPORTS))
    module, name, _ = EXPORTS[kind]
    imported: type[Export[Any]] = getattr(import_module(f"relabel.export.{module}"), name)
    return imported
