"""Contract: the counts of a gated source equal those of an uninterrupted run, for a kill at any point and for damage to
any file of the finished artefact. Files with counts are no part of the artefact.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.relabel.store.conftest import lay, watched

from relabel.sources.gate_counts import collect_gate_counts, with_gate_counts, write_gate_counts
from relabel.sources.relevance import GateCounts
from relabel.store.artefact import build
from relabel.store.manifest import MANIFEST, ArtefactSpec, open_artefact
from relabel.store.workdir import Work, part_name

PARTS = 3
DRAFT = ArtefactSpec("judgement", "gated", {}, {})
WHOLE = {"label": "near", "asked": 30, "refined": 1 + 2 + 3}


def relevance() -> Any:
    counts = {"asked": 0, "refined": 0}
    return SimpleNamespace(counts=counts, gate_counts=lambda: GateCounts({"label": "near"}, dict(counts)))


def make_one(relevance: Any, part: int) -> pa.Table:
    """Make one table whose rows a relevance counts."""
    relevance.counts["asked"] += 10
    relevance.counts["refined"] += part + 1
    return pa.table({"part": [part]})


def judged(work: Work) -> None:
    """Build tables with counts, as judgements have them."""
    counted = relevance()
    counted_work = with_gate_counts(work, counted)
    for part in range(PARTS):
        counted_work.part(part, PARTS, lambda part=part: make_one(counted, part))
    collect_gate_counts(work)


def searched(work: Work) -> None:
    """Build a table from intermediate tables with counts, as neighbours and plans do."""
    counted, shared = relevance(), [f"refined-{part}.parquet" for part in range(PARTS)]
    counted_work = with_gate_counts(work, counted)
    if not work.done(part_name(0, 1)):
        for part, name in enumerate(shared):
            if not work.done(name):
                table = make_one(counted, part)
                write_gate_counts(counted_work, name)
                work.table(name, lambda table=table: table)
    work.part(0, 1, lambda: pa.table({"row": [1]}))
    work.file("keys.txt", lambda path: path.write_text("keys") and None)
    collect_gate_counts(work)
    work.excluded.update(shared)


FILLS = pytest.mark.parametrize("fill", [judged, searched])


@FILLS
def test_counts_after_a_kill_equal_those_of_an_uninterrupted_run(
    fill: Callable[[Work], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with watched(home, monkeypatch) as seen:
        manifest, _ = build(home / "out", DRAFT, fill)
    assert manifest.facts["refined"] == WHOLE
    assert not [name for name in manifest.files if "tally" in name or name.startswith("refined")]
    assert len(seen.killed) > 20
    for tree in seen.killed:
        folder = lay(tree, tmp_path / "left")
        again, _ = build(folder / "out", DRAFT, fill)
        assert again.facts["refined"] == WHOLE
        assert again.files == manifest.files
        assert sorted(p.name for p in (folder / "out").iterdir()) == sorted([MANIFEST, *manifest.files])


@FILLS
def test_a_damaged_file_is_rebuilt_and_the_counts_stay(fill: Callable[[Work], None], tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest, _ = build(out, DRAFT, fill)
    for name in manifest.files:
        (out / name).write_bytes(b"damaged")
        again, built = build(out, DRAFT, fill)
        assert built
        assert again.facts["refined"] == WHOLE
        open_artefact(out, "judgement")


def test_a_source_that_does_not_count_has_no_counts(tmp_path: Path) -> None:
    def fill(work: Work) -> None:
        ungated: Any = SimpleNamespace(gate_counts=lambda: None)
        with_gate_counts(work, ungated).part(0, 1, lambda: pa.table({"part": [0]}))
        collect_gate_counts(work)

    assert build(tmp_path / "out", DRAFT, fill)[0].facts == {}
