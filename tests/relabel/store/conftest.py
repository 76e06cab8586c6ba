"""A disk that remembers: what is on it at every instant of a build, and what a power cut at that instant may leave."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CALLS = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir")
"""The calls of `os` through which everything becomes visible or durable."""

Tree = dict[str, bytes | None]
"""Paths below the root to contents; None for a folder."""


@dataclass
class Disk:
    """Watches a folder. Before each call of CALLS it notes what the disk holds.

    A killed process leaves what is there at that instant. A power cut leaves of each file its content at its last
    fsync, or anything if there was none; and of each folder the names at its last fsync, or those of now, each folder
    for itself.

    Attributes
    ----------
    root : Path
    killed, cut : list of Tree
        What is left, without repetition.
    calls : int
        Instants that were looked at.
    """

    root: Path
    killed: list[Tree] = field(default_factory=list)
    cut: list[Tree] = field(default_factory=list)
    calls: int = 0
    _last: dict[int, bytes] = field(default_factory=dict)  # of every file that was ever there
    _contents: dict[int, bytes] = field(default_factory=dict)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)  # open, so that no inode's number comes again
    _seen: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Note what is there, and what a power cut would leave."""
        self.calls += 1
        live: dict[int, dict[str, int]] = {}
        contents: dict[int, bytes] = {}
        self._scan(self.root, live, contents)
        here = self.root.stat().st_ino
        self._keep(self.killed, _tree(here, live, contents))
        doubtful = [i for i, names in live.items() if names != self._names.get(i, {}) and i != here]
        doubtful = [here, *doubtful] if live[here] != self._names.get(here, {}) else doubtful
        for lost in itertools.product([False, True], repeat=len(doubtful)):
            names = live | {i: self._names.get(i, {}) for i, gone in zip(doubtful, lost, strict=True) if gone}
            names = self._names | names
            for garbage in (lambda _: b"", lambda body: bytes(len(body)), lambda body: body[: len(body) // 2]):
                bodies = {i: self._contents.get(i, garbage(body)) for i, body in self._last.items()}
                self._keep(self.cut, _tree(here, names, bodies))

    def synced(self, handle: int) -> None:
        """Note that a file or a folder was made durable."""
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self.root not in (path, *path.parents):
            return
        if path.is_dir():
            self._names[path.stat().st_ino] = {p.name: p.stat().st_ino for p in path.iterdir()}
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def close(self) -> None:
        """Let go of all inodes."""
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
    found: Tree = {}
    for name, number in names.get(folder, {}).items():
        if number in contents:
            found[above + name] = contents[number]
        else:
            found[above + name] = None
            found |= _tree(number, names, contents, f"{above}{name}/")
    return found


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
    """Put a tree on the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, body in tree.items():
        if body is None:
            (folder / name).mkdir(parents=True, exist_ok=True)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(body)
    return folder


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Watch a folder: ``with disk(folder) as seen: ...``."""
    return lambda root: watched(root, monkeypatch)


@pytest.fixture
def lay_tree() -> Callable[[Tree, Path], Path]:
    """See `lay`."""
    return lay
