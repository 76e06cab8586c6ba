"""Contract: after a kill or a power cut at any call of a build, the artefact is complete or absent and the next run
ends with the same bytes. An artefact that a run reported as built survives the power cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relabel.core.errors import MissingError
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MANIFEST, open_artefact
from relabel.store.workdir import Work, part_name

SHARDS = 2


def recipe(size: int) -> Recipe:
    """Build two groups: a file outside the artefact, and shards made from it, with a fact read from that file."""

    def fill(work: Work) -> None:
        work.file("seed.txt", lambda p: p.write_text(str(size)))
        work.subfolder("deep").file("b.txt", lambda p: p.write_text("b"))
        (work.folder / ".scratch").write_text("spilled")
        seed = int((work.folder / "seed.txt").read_text())
        for i in range(SHARDS):
            rows = pa.array(range(seed * i, seed * (i + 1)), pa.int32())
            work.table(part_name(i, SHARDS), lambda rows=rows: pa.table({"row": rows}))
        work.excluded.add("seed.txt")
        work.metadata["seed"] = seed

    return Recipe("encoding", "demo", lambda: {"size": size}, {"corpus": "abc"}, fill)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file except the locks and the manifest, which holds timings."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock" and p.name != MANIFEST]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def state_of(out: Path) -> int | None:
    """Return the size of the built artefact, or None if there is none; a partial artefact is an error."""
    try:
        return int(open_artefact(out, "encoding").config["size"])
    except MissingError:
        return None


@pytest.mark.parametrize("way", ["killed", "cut"])
@pytest.mark.parametrize("old", [None, 4])
def test_the_next_run_ends_with_the_same_bytes_from_every_state(
    way: str,
    old: int | None,
    tmp_path: Path,
    disk: Callable[[Path], Any],
    lay_tree: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    build(tmp_path / "unbroken" / "out", recipe(5))
    complete = contents(tmp_path / "unbroken")
    assert sorted(complete) == ["out/deep/b.txt", *(f"out/{part_name(i, SHARDS)}" for i in range(SHARDS))]
    with disk(home) as seen:
        if old is not None:
            build(home / "out", recipe(old))
        build(home / "out", recipe(5))
    left = getattr(seen, way)
    assert seen.calls > 50
    assert len(left) > 15
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the following runs are not interrupted
    states = set()
    for tree in left:
        folder = lay_tree(tree, tmp_path / "left")
        states.add(state_of(folder / "out"))
        manifest, _ = build(folder / "out", recipe(5))
        assert manifest.metadata == {"seed": 5}
        assert contents(folder) == complete, sorted(tree)
    assert states == {None, 5} | ({old} if old else set())


def test_a_reported_artefact_survives_a_power_cut(
    tmp_path: Path, disk: Callable[[Path], Any], lay_tree: Callable[..., Path]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with disk(home) as seen:
        build(home / "deep" / "out", recipe(5))
        seen.cut.clear()
        seen._seen.clear()
        (home / "later").mkdir()  # any call makes the disk record its contents
    assert seen.cut
    for tree in seen.cut:
        assert state_of(lay_tree(tree, tmp_path / "left") / "deep" / "out") == 5
