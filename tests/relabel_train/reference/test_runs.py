"""Contract: a checkpoint restores every bit and type, and runs no code; the file is complete or does not exist."""

from __future__ import annotations

import errno
import math
import os
import pickle
import random
from pathlib import Path

import pytest
import torch
from tests.relabel_train.reference.runs import assert_same

from relabel_train.reference.options import FitError
from relabel_train.reference.runs import load_checkpoint, save_checkpoint

OPTIMIZER = {"state": {0: {"step": torch.tensor(3.0)}, 1: {}}, "groups": [{"betas": (0.9, 0.999), "eps": 1e-8}]}
MODEL = {"w": torch.randn(3, 2), "n": torch.tensor(7), "empty": torch.zeros(0, 2)}
STATE = {"model": MODEL, "optimizer": OPTIMIZER, "best": -math.inf, "said": None, "é": [True, 1, 0.1 + 0.2]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "last.pt", STATE)
    return tmp_path / "last.pt"


def test_everything_is_restored_also_by_torch(path: Path) -> None:
    save_checkpoint(path, STATE)
    assert_same(load_checkpoint(path), STATE)
    assert_same(torch.load(path, weights_only=True), STATE)
    assert list(path.parent.iterdir()) == [path]


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "full")


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        save_checkpoint(path, {"w": torch.zeros(3), "bad": lambda: None})
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="full"):
            save_checkpoint(path, {"w": torch.zeros(4)})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    path.with_name(".last.pt.part").write_bytes(b"of a killed process")
    save_checkpoint(path, STATE)
    assert list(path.parent.iterdir()) == [path]


class Code:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.write_text, (Path("ran"), "x")


def test_a_file_that_is_no_checkpoint_is_named_and_runs_no_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check code, cut files, and a changed bit in every twentieth byte and the last one."""
    monkeypatch.chdir(path.parent)
    whole, draws = path.read_bytes(), random.Random(0)
    save_checkpoint(path, {"w": Code()})
    damaged = [path.read_bytes(), whole[:2000], whole[:100], b"", b"PK" * 100, b"not a zip"]
    for position in [*range(0, len(whole), 20), len(whole) - 1]:
        changed = whole[position] ^ 1 << draws.randrange(8)
        damaged.append(whole[:position] + bytes([changed]) + whole[position + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(FitError, match=r"last\.pt"):
            load_checkpoint(path)
    assert not Path("ran").exists()
    with pytest.raises(FileNotFoundError, match=r"gone\.pt"):
        load_checkpoint(path.with_name("gone.pt"))


def test_a_pipe_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "last.pt")
    with pytest.raises(FitError, match=r"last\.pt.*not a regular file"):
        load_checkpoint(tmp_path / "last.pt")
