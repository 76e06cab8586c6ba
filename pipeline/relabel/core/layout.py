"""Folders of all artefacts, with one folder per dataset, and the rule for names that become part of a path."""

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
"""The rule for names, for messages."""


def is_name(name: str) -> bool:
    """Return whether a name may become a folder."""
    return _NAME.fullmatch(name) is not None


def check_name(kind: str, name: str) -> str:
    """Return the name if it may become a folder, else raise.

    `kind`: kind of the name, for the message: "label", "plan", ...
    """
    if not is_name(name):
        shown = repr(name) if len(name) <= 120 else f"{name[:120]!r}... ({len(name)} characters)"
        raise UsageError(f"{shown} cannot name a {kind}", todo=RULE)
    return name


@dataclass(frozen=True)
class Layout:
    """Folders of one dataset: ``labels/coco/{corpus, encodings/SPLIT/LABEL, judgements/SPLIT/LABEL, ...}``.

    Every name that becomes part of a path is checked, so that no name leads out of its folder. A method that takes a
    label returns the folder of all labels if the label is omitted.

    `labels`: folder of all datasets.
    """

    labels: Path
    dataset: str

    def __post_init__(self) -> None:
        check_name("dataset", self.dataset)

    @property
    def root(self) -> Path:
        """Folder of the dataset."""
        return self.labels / self.dataset

    @property
    def corpus(self) -> Path:
        """Folder of the corpus."""
        return self.root / "corpus"

    def encoding(self, split: str, label: str | None = None) -> Path:
        """Return the folder of one label's encoding of one split."""
        return _labelled(self.root / "encodings" / check_name("split", split), label)

    def neighbours(self, within: str, of: str, label: str | None = None) -> Path:
        """Return the folder of the nearest captions of split `within` for each of its captions or images (`of`)."""
        folder = self.root / "neighbours" / check_name("split", within) / check_name("kind of query", of)
        return _labelled(folder, label)

    def judgement(self, split: str, label: str | None = None) -> Path:
        """Return the folder of one label's scores of the human-judged pairs."""
        return _labelled(self.root / "judgements" / check_name("split", split), label)

    def ranking(self, split: str, label: str | None = None) -> Path:
        """Return the folder of one label's rankings of ECCV Caption."""
        return _labelled(self.root / "rankings" / check_name("split", split), label)

    def figures(self, split: str, label: str | None = None) -> Path:
        """Return the folder of one label's agreement with the human-judged pairs."""
        return _labelled(self.root / "figures" / check_name("split", split), label)

    def lookup(self, split: str, label: str | None = None) -> Path:
        """Return the folder of the lookup of one label over one split."""
        return _labelled(self.root / "exports" / check_name("split", split) / "lookup", label)

    def neighbour_ids(self, within: str, of: str, label: str) -> Path:
        """Return the folder of one label's neighbours by id."""
        folder = self.root / "exports" / check_name("split", within) / "neighbours" / check_name("kind of query", of)
        return _labelled(folder, label)

    def export(self, split: str, kind: str, label: str) -> Path:
        """Return the folder of an export of a label, or of a plan by its name."""
        return self.root / "exports" / check_name("split", split) / check_name("format", kind) / check_name(kind, label)

    def judged_set(self, name: str) -> Path:
        """Return the folder of all labels' encodings, scores and figures of the texts of one judged set."""
        return self.root / "judged" / check_name("judged set", name)

    def report(self, split: str, kind: str | None = None) -> Path:
        """Return the folder of the tables and plots over all labels; `kind` is one of their reports."""
        folder = self.root / "report" / check_name("split", split)
        return folder if kind is None else folder / check_name("report", kind)

    def page(self, split: str) -> Path:
        """Return the folder of the HTML page over all labels."""
        return self.root / "page" / check_name("split", split)


def _labelled(folder: Path, label: str | None) -> Path:
    return folder if label is None else folder / check_name("label", label)
