"""What a gated source counts while an artefact is made, kept beside each file: killed and shared work adds up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from relabel.sources.base import Relevance
from relabel.store.atomic import void
from relabel.store.work import Work

_END = ".tally.json"


@dataclass
class Counting(Work):
    """Work whose tables leave, each before it is committed, what a relevance counted since the one before.

    Attributes
    ----------
    relevance : Relevance or None
        Counts if it has a `tally` (counts since it was opened, by name) and a `gate`; see bert_sts.
    """

    relevance: Relevance | None = None
    last: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, work: Work, relevance: Relevance) -> Counting:
        """Count in a work folder."""
        return cls(work.folder, work.facts, work.runtime, relevance, dict(_counts(relevance) or {}))

    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """See Work.table."""

        def counted() -> pa.Table:
            table = make()
            if self.relevance is not None:
                leave_tally(self.relevance, self, name, self.last)
                self.last = dict(_counts(self.relevance) or {})
            return table

        super().table(name, counted, plain)


@contextmanager
def tallied(relevance: Relevance, work: Work, name: str) -> Iterator[None]:
    """Leave what a relevance counts within the block, before the file `name` is committed."""
    before = dict(_counts(relevance) or {})
    yield
    leave_tally(relevance, work, name, before)


def leave_tally(relevance: Relevance, work: Work, name: str, before: dict[str, int]) -> None:
    """Leave what a relevance counted since it stood at `before`; nothing if it does not count."""
    counts = _counts(relevance)
    if counts is None:
        return
    found = {what: count - before.get(what, 0) for what, count in counts.items()}
    text = json.dumps({"gate": vars(relevance.gate), "counts": found})  # type: ignore[attr-defined]
    work.file(f"{name}{_END}", lambda path: void(path.write_text(text, encoding="utf-8")))


def take_tally(work: Work) -> dict[str, Any] | None:
    """Add up what was counted, and drop the files; None if nothing was."""
    gate: dict[str, Any] | None = None
    counts: dict[str, int] = {}
    for name in [n for n in work.entries() if n.endswith(_END)]:
        body = json.loads((work.folder / name).read_text(encoding="utf-8"))
        gate = body["gate"]
        for what, count in body["counts"].items():
            counts[what] = counts.get(what, 0) + count
        work.drop(name)
    return None if gate is None else {**gate, **counts}


def _counts(relevance: Relevance) -> dict[str, int] | None:
    return getattr(relevance, "tally", None)
