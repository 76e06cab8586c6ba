"""Contract: the hash of an input file is remembered between processes, and computed again after any change of the file,
also one that keeps its size and time of modification."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from relabel.store import files
from relabel.store.files import input_sha256


def test_a_changed_file_is_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_SETTLED", -1.0)
    read, path = [], tmp_path / "a.bin"
    monkeypatch.setattr(files, "sha256_file", lambda p: read.append(p) or hashlib.sha256(p.read_bytes()).hexdigest())
    path.write_bytes(b"one")
    for _ in range(2):
        assert input_sha256(path) == hashlib.sha256(b"one").hexdigest()
    assert len(read) == 1
    state = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert input_sha256(path) == hashlib.sha256(b"two").hexdigest()


def test_a_file_that_may_still_change_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    assert input_sha256(path) == hashlib.sha256(b"one").hexdigest()
    assert not (tmp_path / "cache").exists()
