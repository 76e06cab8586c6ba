"""Registry of the sources by name. A source's modules load when the source is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relabel.core.errors import UsageError
from relabel.core.hints import choices

if TYPE_CHECKING:
    from relabel.sources.base import Source

SOURCES = {
    "same_image": ("relabel.sources.same_image", "SameImage"),
    "cbow": ("relabel.sources.cbow", "Cbow"),
    "cider": ("relabel.sources.cider", "Cider"),
    "meteor": ("relabel.sources.meteor", "Meteor"),
    "sbert": ("relabel.sources.sbert", "Sbert"),
    "spice": ("relabel.sources.spice", "Spice"),
    "wmd": ("relabel.sources.wmd", "Wmd"),
    "fuse": ("relabel.sources.fuse", "Fuse"),
    "vectors": ("relabel.sources.vectors", "Vectors"),
    "bert_sts": ("relabel.sources.bert_sts", "BertSts"),
}
"""Name of each source, with its module and class."""


def source_class(name: str) -> type[Source[Any]]:
    """Import the class of a source.

    Parameters
    ----------
    name : str
        Name of the source in `params.yaml`.

    Raises
    ------
    UsageError
        If no source has this name.

    Examples
    --------
    >>> from relabel.sources import source_class
    >>> source_class("cider").spec.kind
    'features'
    """
    if name not in SOURCES:
        raise UsageError(f"no source {name!r}", todo=choices(name, SOURCES))
    module, attribute = SOURCES[name]
    imported: type[Source[Any]] = getattr(import_module(module), attribute)
    return imported
