"""Contract: a checkpoint comes back to the bit and in kind, without pickle; it is whole or it is not there."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from relabel_train.training.checkpoint import load_checkpoint, save_checkpoint
from relabel_train.training.errors import FitError

STATE = {
    "model": {"w": torch.randn(3, 2), "n": torch.tensor(7), "empty": torch.zeros(0, 2)},
    "optimizer": {"state": {0: {"step": torch.tensor(3.0)}, 1: {}}, "groups": [{"betas": (0.9, 0.999), "eps": 1e-8}]},
    "best": -math.inf,
    "said": None,
    "é": [True, 1, 0.1 + 0.2],
}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "last.npz"
    save_checkpoint(path, STATE)
    save_checkpoint(path, STATE)
    assert same(STATE, load_checkpoint(path))
    assert [p.name for p in tmp_path.iterdir()] == ["last.npz"]
    with zipfile.ZipFile(path) as archive:  # numpy alone reads it
        np.testing.assert_array_equal(np.load(archive.open("00000.npy"), allow_pickle=False), STATE["model"]["w"])  # type: ignore[index]


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "last.npz"
    save_checkpoint(path, STATE)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_checkpoint(path, {"w": torch.zeros(3), "bad": object()})
    assert path.read_bytes() == before
    (tmp_path / ".last.npz.1.part").write_bytes(b"of a killed process")
    save_checkpoint(path, STATE)
    assert [p.name for p in tmp_path.iterdir()] == ["last.npz"]


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "last.npz"
    save_checkpoint(path, {"w": torch.arange(1000.0)})
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 1
    path.write_bytes(raw[: len(raw) // 2] if damage == "cut" else raw)
    with pytest.raises(FitError, match=r"last\.npz: not a whole checkpoint"):
        load_checkpoint(path)
    with pytest.raises(FileNotFoundError, match="relabel fit"):
        load_checkpoint(tmp_path / "gone.npz")
