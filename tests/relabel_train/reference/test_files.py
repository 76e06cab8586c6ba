"""Contract: a checkpoint restores every bit and type, and runs no code; the file is complete or does not exist.

Every event of a run is logged once, as a line and on TensorBoard, also after kills and resumptions.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from relabel_train.reference.files import LOG, Log, load_checkpoint, save_checkpoint
from relabel_train.reference.options import FitError

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


def test_everything_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, STATE)
    save_checkpoint(path, STATE)
    assert same(STATE, load_checkpoint(path))
    assert same(STATE, torch.load(path, weights_only=True))
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def test_a_checkpoint_that_was_cut_or_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, {"w": torch.arange(1000.0)})
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(FitError, match=r"last\.pt: not a valid checkpoint"):
        load_checkpoint(path)
    with pytest.raises(FileNotFoundError, match="relabel fit"):
        load_checkpoint(tmp_path / "gone.pt")


class Code:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.write_text, (Path("ran"), "x")


@pytest.mark.parametrize("content", [{"w": Code()}, b"", b"PK" * 100, b"not a zip"])
def test_a_file_that_is_no_checkpoint_is_named_and_runs_no_code(
    content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "last.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save_checkpoint(path, content)
    with pytest.raises(FitError, match=r"last\.pt: not a valid checkpoint"):
        load_checkpoint(path)
    assert not (tmp_path / "ran").exists()


def test_a_changed_byte_is_named(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, STATE)
    contents, draws = path.read_bytes(), random.Random(0)
    for position in [*range(0, len(contents), 20), len(contents) - 1]:
        raw = bytearray(contents)
        raw[position] ^= 1 << draws.randrange(8)
        path.write_bytes(raw)
        with pytest.raises(FitError, match=r"last\.pt.*sha256"):
            load_checkpoint(path)


def messages_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]


def events_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the (step, value) pairs of TensorBoard by name."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = events.EventAccumulator(str(folder))
    board.Reload()
    return {name: [(e.step, e.value) for e in board.Scalars(name)] for name in board.Tags()["scalars"]}


def test_a_killed_run_logs_every_event_once(tmp_path: Path) -> None:
    messages: list[str] = []
    first = Log(tmp_path, messages.append)
    for step in (1, 2, 3):
        first.write("train", step, {"loss": 10.0 - step}, f"step {step}")
        if step == 2:
            size = first.size  # a checkpoint, one more step, then the end
    first.close()
    again = Log(tmp_path, messages.append, size, 2)
    for step in (3, 4):
        again.write("train", step, {"loss": 20.0 - step})
    again.write("evaluation", 4, {"rsum": 123.0})
    again.close()
    expected = [(1, 9.0), (2, 8.0), (3, 17.0), (4, 16.0)]
    assert [(line["step"], line["loss"]) for line in messages_of(tmp_path) if line["kind"] == "train"] == expected
    assert events_of(tmp_path) == {"train/loss": expected, "evaluation/rsum": [(4, 123.0)]}
    assert messages == ["step 1", "step 2", "step 3"]
