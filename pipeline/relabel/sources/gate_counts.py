"""Counts of a gate while an artefact is made, stored beside each file so that restarts and workers add up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from typing_extensions import override

from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work

_END, _FACT = ".tally.json", "refined"


@dataclass
class CountingWork(Work):
    """A Work that writes the gate's counts next to every table it commits, so that they survive a restart.

    `relevance`: a gated relevance.
    `last`: its counts when the last table was committed.
    """

    relevance: Relevance = field(kw_only=True)
    last: dict[str, int] = field(kw_only=True)

    @override
    def table(self, name: str, make: Callable[[], pa.Table], plain: bool = False) -> None:
        """Write a table, and beside it the counts of the gate since the table before."""

        def make_and_count() -> pa.Table:
            table = make()
            write_gate_counts(self, name)
            return table

        super().table(name, make_and_count, plain)


def with_gate_counts(work: Work, relevance: Relevance) -> Work:
    """Return the same work, as a `CountingWork` if the relevance has a gate."""
    gated = relevance.gate_counts()
    if gated is None:
        return work
    return CountingWork(work.folder, work.facts, work.runtime, relevance=relevance, last=gated.counts)


def write_gate_counts(work: Work, name: str) -> None:
    """Write the counts since the last table of a `CountingWork`, before the file `name` is committed."""
    if isinstance(work, CountingWork):
        work.last = _write_counts(work.relevance, work, name, work.last)


def _write_counts(relevance: Relevance, work: Work, name: str, before: dict[str, int]) -> dict[str, int]:
    """Write the counts since `before`, if there is a gate, and return the counts so far."""
    gated = relevance.gate_counts()
    if gated is None:
        return {}
    difference = {name: count - before.get(name, 0) for name, count in gated.counts.items()}
    # A killed run may have left the counts of a table of other rows.
    work.drop(f"{name}{_END}")
    # The file is committed before its table, so a table never lacks its counts.
    text = json.dumps({"gate": gated.gate, "counts": difference})
    work.file(f"{name}{_END}", lambda path: path.write_text(text, encoding="utf-8"))
    return gated.counts


def collect_gate_counts(work: Work) -> None:
    """Add up the counts of all files as the fact `refined`, if there are any, and exclude those files.

    If files of a finished artefact are damaged, only those files are made again, so the fact of its manifest is kept.
    """
    names = [name for name in work.entries() if name.endswith(_END)]
    work.excluded.update(names)
    fact: dict[str, Any] = dict(work.previous.get(_FACT, {}))
    # Counts of the files that were made again would be added to a total that includes them.
    for name in names if not fact else ():
        body = json.loads((work.folder / name).read_text(encoding="utf-8"))
        fact = body["gate"] | {name: count + fact.get(name, 0) for name, count in body["counts"].items()}
    if fact:
        work.facts[_FACT] = fact
