"""A simulated disk: its contents at every call of a build, and the states that a power cut at that call may leave.

Contract: after a kill or a power cut at any call of a build, the artefact is complete or absent and the next run
ends with the same bytes. An artefact that a run reported as built survives the power cut.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relabel.core.errors import MissingError
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MANIFEST, open_artefact
from relabel.store.workdir import Work, part_name

CALLS = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir")
"""The calls of `os` through which everything becomes visible or durable."""

Tree = dict[str, bytes | None]
"""Paths below the root to contents; None for a folder."""


@dataclass
class Disk:
    """Watch a folder, and record the contents of the disk before each call of CALLS.

    A killed process leaves the current contents. After a power cut, each file has its content at its last fsync, or any
    content if there was none; each folder has, independently of the others, its names at its last fsync or the current
    ones.

    Attributes
    ----------
    root : Path killed, cut : list of Tree
        Remaining states, without repetition.
    calls : int
        Number of recorded calls.
    """

    root: Path
    killed: list[Tree] = field(default_factory=list)
    cut: list[Tree] = field(default_factory=list)
    calls: int = 0
    _last: dict[int, bytes] = field(default_factory=dict)  # of every file that ever existed
    _contents: dict[int, bytes] = field(default_factory=dict)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)  # open descriptors, so that no inode number is reused
    _seen: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Record the current contents, and the states after a power cut."""
        self.calls += 1
        live: dict[int, dict[str, int]] = {}
        contents: dict[int, bytes] = {}
        self._scan(self.root, live, contents)
        root_inode = self.root.stat().st_ino
        self._keep(self.killed, _tree(root_inode, live, contents))
        doubtful = [i for i, names in live.items() if names != self._names.get(i, {}) and i != root_inode]
        doubtful = [root_inode, *doubtful] if live[root_inode] != self._names.get(root_inode, {}) else doubtful
        for lost in itertools.product([False, True], repeat=len(doubtful)):
            names = live | {i: self._names.get(i, {}) for i, is_lost in zip(doubtful, lost, strict=True) if is_lost}
            names = self._names | names
            for garbage in (lambda _: b"", lambda body: bytes(len(body)), lambda body: body[: len(body) // 2]):
                bodies = {i: self._contents.get(i, garbage(body)) for i, body in self._last.items()}
                self._keep(self.cut, _tree(root_inode, names, bodies))

    def synced(self, handle: int) -> None:
        """Record that a file or a folder is durable."""
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self.root not in (path, *path.parents):
            return
        if path.is_dir():
            self._names[path.stat().st_ino] = {p.name: p.stat().st_ino for p in path.iterdir()}
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def close(self) -> None:
        """Close all inodes."""
        for handle in self._held.values():
            os.close(handle)

    def _scan(self, folder: Path, names: dict[int, dict[str, int]], contents: dict[int, bytes]) -> None:
        inside = names.setdefault(folder.stat().st_ino, {})
        for path in folder.iterdir():
            number = inside[path.name] = path.stat().st_ino
            if number not in self._held:
                self._held[number] = os.open(path, os.O_RDONLY)
            if path.is_dir():
                self._scan(path, names, contents)
            else:
                contents[number] = self._last[number] = path.read_bytes()

    def _keep(self, kept: list[Tree], tree: Tree) -> None:
        key = hash((id(kept), frozenset(tree.items())))
        if key not in self._seen:
            self._seen.add(key)
            kept.append(tree)


def _tree(folder: int, names: dict[int, dict[str, int]], contents: dict[int, bytes], above: str = "") -> Tree:
    tree: Tree = {}
    for name, number in names.get(folder, {}).items():
        if number in contents:
            tree[above + name] = contents[number]
        else:
            tree[above + name] = None
            tree |= _tree(number, names, contents, f"{above}{name}/")
    return tree


@contextmanager
def watched(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Watch a folder while the block runs."""
    disk, busy = Disk(root), []

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
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
                busy.pop()
            return result

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrap(name, getattr(os, name)))
        try:
            yield disk
        finally:
            disk.close()


def lay(tree: Tree, folder: Path) -> Path:
    """Write a tree to the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, body in tree.items():
        path = folder / name
        (path if body is None else path.parent).mkdir(parents=True, exist_ok=True)
        if body is not None:
            path.write_bytes(body)
    return folder


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
    way: str, old: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    build(tmp_path / "unbroken" / "out", recipe(5))
    complete = contents(tmp_path / "unbroken")
    assert sorted(complete) == ["out/deep/b.txt", *(f"out/{part_name(i, SHARDS)}" for i in range(SHARDS))]
    with watched(home, monkeypatch) as seen:
        if old is not None:
            build(home / "out", recipe(old))
        build(home / "out", recipe(5))
    left = getattr(seen, way)
    assert seen.calls > 50
    assert len(left) > 15
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the following runs are not interrupted
    states = set()
    for tree in left:
        folder = lay(tree, tmp_path / "left")
        states.add(state_of(folder / "out"))
        manifest, _ = build(folder / "out", recipe(5))
        assert manifest.metadata == {"seed": 5}
        assert contents(folder) == complete, sorted(tree)
    assert states == {None, 5} | ({old} if old else set())


def test_a_reported_artefact_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with watched(home, monkeypatch) as seen:
        build(home / "deep" / "out", recipe(5))
        seen.cut.clear()
        seen._seen.clear()
        (home / "later").mkdir()  # any call makes the disk record its contents
    assert seen.cut
    for tree in seen.cut:
        assert state_of(lay(tree, tmp_path / "left") / "deep" / "out") == 5
