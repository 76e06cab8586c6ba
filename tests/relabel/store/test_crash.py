"""A simulated disk: its contents at every call of a build, and the states that a power cut at that call may leave.

Contract: after a kill or a power cut at any call of a build, the artefact is complete or absent and the next run
ends with the same bytes. An artefact that a run reported as built survives the power cut.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MANIFEST, open_artefact
from relabel.store.workdir import Work, part_name

# The calls of `os` through which everything becomes visible or durable.
CALLS = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir")
# Paths below the root with their contents; None for a folder.
State = frozenset[tuple[str, bytes | None]]


def names_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


@dataclass
class Disk:
    """Watch a folder, and record the contents of the disk before and after each call of CALLS.

    A killed process leaves the current contents. After a power cut, each file has its content at its last fsync, or any
    content if there was none; each folder has, independently of the others, its names at its last fsync or the current
    ones.

    `killed`, `cut`: states that a kill and a power cut leave.
    """

    root: Path
    killed: set[State] = field(default_factory=set)
    cut: set[State] = field(default_factory=set)
    _last: dict[int, bytes] = field(default_factory=dict)  # of every file that ever existed
    _contents: dict[int, bytes] = field(default_factory=dict)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)  # open descriptors, so that no inode number is reused

    def look(self) -> None:
        """Record the current contents, and the states after a power cut."""
        live: dict[int, dict[str, int]] = {}
        contents: dict[int, bytes] = {}
        for path in [self.root, *self.root.rglob("*")]:
            number = path.stat().st_ino
            if number not in self._held:
                self._held[number] = os.open(path, os.O_RDONLY)
            if path.is_dir():
                live[number] = names_in(path)
            else:
                contents[number] = self._last[number] = path.read_bytes()
        self.killed.add(self._state(live, contents))
        doubtful = [i for i, names in live.items() if names != self._names.get(i, {})]
        for lost in itertools.product([False, True], repeat=len(doubtful)):
            old = {i: self._names.get(i, {}) for i, is_lost in zip(doubtful, lost, strict=True) if is_lost}
            for garbage in (lambda _: b"", lambda body: bytes(len(body)), lambda body: body[: len(body) // 2]):
                bodies = {i: self._contents.get(i, garbage(body)) for i, body in self._last.items()}
                self.cut.add(self._state(self._names | live | old, bodies))

    def synced(self, handle: int) -> None:
        """Record that a file or a folder is durable."""
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self.root not in (path, *path.parents):
            return
        if path.is_dir():
            self._names[path.stat().st_ino] = names_in(path)
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def close(self) -> None:
        """Close all inodes."""
        for handle in self._held.values():
            os.close(handle)

    def _state(self, names: dict[int, dict[str, int]], contents: dict[int, bytes]) -> State:
        def walk(folder: int, above: str) -> Iterator[tuple[str, bytes | None]]:
            for name, number in names.get(folder, {}).items():
                yield above + name, contents.get(number)
                yield from walk(number, f"{above}{name}/")

        return frozenset(walk(self.root.stat().st_ino, ""))


@contextmanager
def watched(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Make a folder, and watch it while the block runs."""
    root.mkdir()
    disk, busy = Disk(root), list[str]()

    def call(name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if busy:
            return real(*args, **kwargs)
        busy.append(name)
        try:
            disk.look()
            result = real(*args, **kwargs)
            if name == "fsync":
                disk.synced(args[0])
            disk.look()
        finally:
            busy.clear()
        return result

    with monkeypatch.context() as patch, closing(disk):
        for name in CALLS:
            patch.setattr(os, name, partial(call, name, getattr(os, name)))
        yield disk


def lay(state: State, folder: Path) -> Path:
    """Write a state to the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, body in sorted(state):
        if body is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(body)
    return folder


SHARDS = [part_name(i, 2) for i in range(2)]


def recipe(size: int) -> Recipe:
    """Build two groups: a file outside the artefact, and shards made from it, with a fact read from that file."""

    def fill(work: Work) -> None:
        work.file("seed.txt", lambda path: path.write_text(str(size)))
        work.subfolder("deep").file("b.txt", lambda path: path.write_text("b"))
        (work.folder / ".scratch").write_text("spilled")
        seed = int((work.folder / "seed.txt").read_text())
        for i, name in enumerate(SHARDS):
            rows = pa.array(range(seed * i, seed * (i + 1)), pa.int32())
            work.table(name, lambda rows=rows: pa.table({"row": rows}))
        work.excluded.add("seed.txt")
        work.metadata["seed"] = seed

    return Recipe("encoding", "demo", lambda: {"size": size}, {"corpus": "abc"}, fill)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file except the locks and the manifest, which holds timings."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock" and p.name != MANIFEST]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def size_of(out: Path) -> int | None:
    """Return the size of the built artefact, or None if there is none; a partial artefact is an error."""
    return int(open_artefact(out, "encoding").config["size"]) if out.exists() else None


@pytest.mark.parametrize("old", [None, 4])
def test_the_next_run_ends_with_the_same_bytes_from_every_state(
    old: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "unbroken" / "out", recipe(5))
    complete = contents(tmp_path / "unbroken")
    assert sorted(complete) == ["out/deep/b.txt", *(f"out/{name}" for name in SHARDS)]
    with watched(tmp_path / "home", monkeypatch) as disk:
        for size in (old, 5) if old else (5,):
            build(tmp_path / "home" / "out", recipe(size))
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the following runs are not interrupted
    for left in (disk.killed, disk.cut):
        assert len(left) > 15
        sizes = set()
        for state in left:
            folder = lay(state, tmp_path / "left")
            sizes.add(size_of(folder / "out"))
            manifest, _ = build(folder / "out", recipe(5))
            assert manifest.metadata == {"seed": 5}
            assert contents(folder) == complete, sorted(state)
        assert sizes == {None, old, 5}


def test_a_reported_artefact_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    with watched(home, monkeypatch) as disk:
        build(home / "deep" / "out", recipe(5))
        disk.cut.clear()
        (home / "later").mkdir()  # any call makes the disk record its contents
    assert disk.cut
    for state in disk.cut:
        assert size_of(lay(state, tmp_path / "left") / "deep" / "out") == 5
