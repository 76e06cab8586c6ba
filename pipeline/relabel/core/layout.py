"""Folders of all artefacts, one folder per dataset, and the names that may be part of their paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from relabel.core.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
RULE = (
    "A name has at most 100 characters, all of them ASCII letters, digits, '_', '-', '.' or '+', and begins with a "
    "letter or a digit."
)
"""The pattern of names, for messages."""


def is_name(name: str) -> bool:
    """Return whether a name may become a folder."""
    return _NAME.fullmatch(name) is not None


def check_name(what: str, name: str) -> str:
    """Return a name that may become a folder.

    Parameters
    ----------
    what : str
        Kind of the name, for the message: "label", "plan", ...
    name : str

    Raises
    ------
    UsageError
        If the name does not match the pattern.
    """
    if not is_name(name):
        shown = repr(name) if len(name) <= 120 else f"{name[:120]!r}... ({len(name)} characters)"
        raise UsageError(f"{shown} cannot name a {what}", todo=RULE)
    return name


@dataclass(frozen=True)
class Layout:
    """Folders of one dataset: ``labels/coco/{corpus, encodings/SPLIT/LABEL, judgements/SPLIT/LABEL, report/SPLIT}``.

    Every name that becomes part of a path is checked, so that no name leads out of its folder. A method that takes a
    label returns the folder of all labels where none is given.

    Attributes
    ----------
    labels : Path
        Folder of all datasets.
    dataset : str

    Raises
    ------
    UsageError
        If a dataset, split, label or plan has a name that cannot be a folder's.
    """

    labels: Path
    dataset: str

    def __post_init__(self) -> None:
        check_name("dataset", self.dataset)

    @property
    def root(self) -> Path:
        """The folder of the dataset."""
        return self.labels / self.dataset

    @property
    def corpus(self) -> Path:
        """The corpus."""
        return self.root / "corpus"

    def encoding(self, split: str, label: str | None = None) -> Path:
        """One label's encoding of one split."""
        return _labelled(self.root / "encodings" / check_name("split", split), label)

    def neighbours(self, within: str, of: str, label: str | None = None) -> Path:
        """The captions of split `within` nearest to each of its captions or images."""
        folder = self.root / "neighbours" / check_name("split", within) / check_name("kind of query", of)
        return _labelled(folder, label)

    def judgement(self, split: str, label: str | None = None) -> Path:
        """One label's scores of the human-judged pairs, and its figures as a ranker."""
        return _labelled(self.root / "judgements" / check_name("split", split), label)

    def lookup(self, split: str, label: str | None = None) -> Path:
        """The lookup of one label over one split."""
        return _labelled(self.root / "exports" / check_name("split", split) / "lookup", label)

    def plan(self, split: str, name: str) -> Path:
        """Batches of one split with their blocks."""
        return self.root / "exports" / check_name("split", split) / "plan" / check_name("plan", name)

    def stsb(self, label: str) -> Path:
        """One label's work on the STS benchmark."""
        return self.root / "stsb" / check_name("label", label)

    def report(self, split: str) -> Path:
        """Tables and pictures over all labels."""
        return self.root / "report" / check_name("split", split)


def _labelled(folder: Path, label: str | None) -> Path:
    return folder if label is None else folder / check_name("label", label)


_PLACES: dict[str, tuple[str | None, ...]] = {
    "neighbours": ("neighbours", None, None, None),
    "lookup": ("exports", None, "lookup", None),
    "plan": ("exports", None, "plan", None),
    "encoding": ("encodings", None, None),
    "judgement": ("judgements", None, None),
    "report": ("report", None),
    "corpus": ("corpus",),
}
"""Folder of each kind below that of its dataset; None stands for a name."""


@dataclass(frozen=True)
class Place:
    """The place of an artefact in a layout.

    Attributes
    ----------
    layout : Layout
    kind : str
    names : tuple of str
        Names of its path: split and label, or split and plan; of neighbours `within`, `of` and label.
    """

    layout: Layout
    kind: str
    names: tuple[str, ...]


def place_of(folder: Path) -> Place | None:
    """Return the place that a folder has in the layout of a dataset; None if it has none."""
    for kind, pattern in _PLACES.items():
        above, tail = folder.parts[: -len(pattern)], folder.parts[-len(pattern) :]
        if len(above) < 2 or len(tail) < len(pattern) or not is_name(above[-1]):
            continue
        if all(part in (None, name) for part, name in zip(pattern, tail, strict=True)):
            names = tuple(name for part, name in zip(pattern, tail, strict=True) if part is None)
            return Place(Layout(Path(*above[:-1]), above[-1]), kind, names) if all(map(is_name, names)) else None
    return None
