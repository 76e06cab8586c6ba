"""A report: figures by protocol, with both directions side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One metric under one protocol.

    Attributes
    ----------
    protocol : str
        What it was taken on: `all`, `folds`, `labels`, or the name of a set of positives (`eccv`, `cxc`).
    name : str
        Ends in `_percent` where the values are 0..100; everything else is a fraction, a correlation, a rank counted
        from 1 or a distance.
    i2t, t2i : float, optional
        Image queries over captions, caption queries over images.
    both : float, optional
        The one number of both directions: RSUM and Nsum.
    queries : tuple of int
        How many queries the means are over, i2t and t2i.
    skipped : tuple of int
        How many queries were left out, since the metric is not defined for them.
    """

    protocol: str
    name: str
    i2t: float | None = None
    t2i: float | None = None
    both: float | None = None
    queries: tuple[int, int] = (0, 0)
    skipped: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class RetrievalReport:
    """Everything `retrieval_report` found.

    Attributes
    ----------
    images, captions : int
    ties : str
    figures : tuple of Figure
    notes : tuple of str
        What a reader must know to compare these figures with others.
    """

    images: int
    captions: int
    ties: str
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.figures)

    def __getitem__(self, name: str) -> Figure:
        """Give the figure `protocol.name`, as `all.r1_percent`.

        Raises
        ------
        KeyError
            Naming what there is.
        """
        for figure in self.figures:
            if f"{figure.protocol}.{figure.name}" == name:
                return figure
        there = ", ".join(f"{f.protocol}.{f.name}" for f in self.figures)
        raise KeyError(f"no figure {name!r}; there are {there}")

    def to_json(self) -> dict[str, Any]:
        """As plain numbers: {"figures": {"all": {"r1_percent": {"i2t": ..., "t2i": ..., ...}}}, ...}."""
        figures: dict[str, dict[str, Any]] = {}
        for f in self.figures:
            found: dict[str, Any] = {"i2t": f.i2t, "t2i": f.t2i} if f.both is None else {"both": f.both}
            found |= {"queries": list(f.queries), "skipped": list(f.skipped)}
            figures.setdefault(f.protocol, {})[f.name] = found
        head = {"images": self.images, "captions": self.captions, "ties": self.ties}
        return head | {"figures": figures, "notes": list(self.notes)}

    def table(self) -> str:
        """Lay the figures out as Markdown, one row each."""
        lines = ["| protocol | metric | image to text | text to image | both | queries | left out |", "|" + "---|" * 7]
        for f in self.figures:
            shown = [_number(f, value) for value in (f.i2t, f.t2i, f.both)]
            counts = ["{:,} / {:,}".format(*f.queries), "{:,} / {:,}".format(*f.skipped) if any(f.skipped) else ""]
            lines.append(f"| {' | '.join([f.protocol, f.name, *shown, *counts])} |")
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])


def _number(figure: Figure, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if figure.name.endswith(("_percent", "_rank")) else f"{value:.4f}"
