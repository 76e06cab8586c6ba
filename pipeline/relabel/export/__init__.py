"""Exports: files that training code and other tools read. `EXPORTS` lists the formats of other tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relabel.core.errors import UsageError
from relabel.core.hints import choices

if TYPE_CHECKING:
    from relabel.export.base import Export

EXPORTS = {
    "hf": ("HfExport", "Write a dataset folder that Hugging Face's datasets loads, with a card."),
}
"""Name of each format, which is that of its module, with its class and its line of help."""


def export_class(kind: str) -> type[Export[Any]]:
    """Import the class of a format.

    Raises
    ------
    UsageError
        If there is no such format.

    Examples
    --------
    >>> from relabel.export import export_class
    >>> export_class("hf").neighbours
    True
    """
    if kind not in EXPORTS:
        raise UsageError(f"no format {kind!r}", todo=choices(kind, EXPORTS))
    imported: type[Export[Any]] = getattr(import_module(f"relabel.export.{kind}"), EXPORTS[kind][0])
    return imported
