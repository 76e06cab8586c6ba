"""The sources by name. Modules load only when a source is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relabel.core.errors import UsageError

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
    "vectors": ("relabel.sources.vectors", "GivenVectors"),
    "bert_sts": ("relabel.sources.bert_sts", "BertSts"),
}
"""Source name to (module, class)."""


def source_class(name: str) -> type[Source[Any]]:
    """Import a source's class.

    Raises
    ------
    UsageError
        If there is no such source.
    """
    if name not in SOURCES:
        raise UsageError(f"no source {name!r}", todo=f"There are {', '.join(SOURCES)}.")
    module, attribute = SOURCES[name]
    found: type[Source[Any]] = getattr(import_module(module), attribute)
    return found
