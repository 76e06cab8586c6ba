"""Graded relevance labels for image-text retrieval, computed from caption similarity and checked against people.

The functions below cover everyday use. They take and return ids, texts and numpy arrays, and are imported on first
use: ``import relabel`` itself loads neither torch nor faiss.

Examples
--------
>>> import relabel
>>> scores = relabel.score("a dog on a surfboard", ["a surfing dog", "two cats"], "cider", tokenizer="lower_split")
>>> int(scores.argmax())  # the first caption is the more relevant one
0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relabel.api import *  # noqa: F403

__all__ = ["Label", "Scorer", "correlate", "encode", "export_label", "false_negatives", "ingest", "label", "load"]  # noqa: F405
__all__ += ["neighbours", "report", "run", "score", "verify"]  # noqa: F405


def __getattr__(name: str) -> Any:
    """Import a name of the front door on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from relabel.core.errors import naming_extras

    with naming_extras():
        from relabel import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
