"""Exports: files that training code and other tools read. `EXPORTS` lists the formats of other tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relabel.core.errors import UsageError, choices

if TYPE_CHECKING:
    from relabel.export.base import Export

EXPORTS = {
    "hf": ("hf", "HfExport", "Write a dataset folder that Hugging Face's datasets loads, with a card."),
    "pairs": ("pairs", "PairsExport", "Write scored pairs of captions for the losses of sentence-transformers."),
    "tuples": ("pairs", "TuplesExport", "Write tuples of captions for the losses of sentence-transformers."),
    "flagembedding": (
        "groups",
        "FlagEmbeddingExport",
        "Write queries, positives, negatives and scores for FlagEmbedding.",
    ),
    "tevatron": ("groups", "TevatronExport", "Write queries, positives, negatives and scores for tevatron."),
    "trec": ("trec", "TrecExport", "Write qrels and runs that trec_eval and ir_measures read."),
    "faiss": ("faiss", "FaissExport", "Write indexes of faiss over the vectors of a label, by id."),
    "candidates": ("candidates", "CandidatesExport", "Write pairs of images and captions for a judge to score."),
    "scan": ("scan", "ScanExport", "Write captions, ids and dense blocks for VSE-infinity, SGRAF, NAAF and CHAN."),
}
"""Name of each format, with its module, its class and its line of help."""


def export_class(kind: str) -> type[Export[Any]]:
    """Import the class of a format."""
    if kind not in EXPORTS:
        raise UsageError(f"no format {kind!r}", todo=choices(kind, EXPORTS))
    module, name, _ = EXPORTS[kind]
    imported: type[Export[Any]] = getattr(import_module(f"relabel.export.{module}"), name)
    return imported
