"""Contract: several processes compute the gradients of one, each on a device of its own, and train under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.relabel_train.reference.runs import Run, assert_same, state

from relabel_train.reference.distributed import join_processes
from relabel_train.reference.files import load_checkpoint

UNEVEN = {"epochs": 1, "batch_size": 15}


def torchrun(*arguments: str, folder: Path | None = None) -> str:
    """Run two processes on this machine, in a folder, and return their output."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    some = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "cwd": folder, "timeout": 240}
    process = subprocess.run(command, capture_output=True, text=True, check=False, **some)  # type: ignore[call-overload]
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


@pytest.mark.slow
def test_two_processes_compute_the_gradients_of_one(run: Run, tmp_path: Path) -> None:
    changed: dict[str, dict[str, Any]] = {name: {"model": name} for name in ("vsepp", "vse_inf", "sgr")}
    changed |= {"saf": {"model": "saf", "loss": ("bcls",)}, "log_ratio": {"loss": ("log_ratio",)}}
    changed |= {"anchors": {"loss": ("log_ratio",), "anchors": 0, "triplet": 1.0}}
    changed |= {"sam": {"loss": ("sam",), "loss_kwargs": ("sampling=random",)}}
    changed |= {"graded_sigmoid": {"loss": ("graded_sigmoid",), "loss_kwargs": ("labels=cosine",)}}
    values = {name: run(name, **UNEVEN, **more).model_dump(mode="json") for name, more in changed.items()}
    (tmp_path / "told.json").write_text(json.dumps(values), encoding="utf-8")
    torchrun(str(Path(__file__).with_name("two_processes.py")), str(tmp_path))
    for name in changed:
        parts = ("0-of-2", "1-of-2", "alone")
        first, second, alone = (load_checkpoint(tmp_path / f"{name}-{part}.pt") for part in parts)
        assert alone["loss"] == pytest.approx(first["loss"], rel=1e-5)
        torch.testing.assert_close(first["gradients"], alone["gradients"], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(first["running"], alone["running"], rtol=1e-5, atol=1e-6)
        # Also of a loss's own parameters, which are not averaged: both processes see the complete batch.
        assert_same(first, second, name)
    assert any(gradient.any() for key, gradient in alone["gradients"].items() if key.startswith("losses."))


@pytest.mark.slow
def test_relabel_fit_runs_under_torchrun(run: Run) -> None:
    """Check that only the first process prints; the parameter file of this repository does not describe the labels."""
    options, relabel = run(**UNEVEN), str(Path(sys.executable).with_name("relabel"))
    settings = [f"--set={n}={v}" for n, v in options.model_dump(mode="json", exclude_defaults=True).items()]
    output = torchrun("--no-python", relabel, "fit", "--device=cpu", *settings, folder=options.out.parent)
    assert output.count("best RSUM") == 1
    assert (state(options)["position"]["epoch"], state(options)["identity"]["world"]) == (1, 2)


SECOND = {"RANK": "1", "WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [({}, (0, 1, 0)), ({"RANK": "2"}, (0, 1, 0)), ({"WORLD_SIZE": "1"}, (0, 1, 0)), (SECOND, (1, 4, 1))]
    + [({**SECOND, name: "0"}, (1, 4, 0)) for name in ("LOCAL_RANK", "SLURM_LOCALID")]
    + [({**SECOND, "RANK": "2"}, (2, 4, 0))],
)
def test_every_process_has_a_rank_and_a_gpu_of_its_own(
    said: dict[str, str], expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check rank, number of processes and device on machines of two GPUs; RANK counts for several processes only."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    chosen: list[torch.device] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    monkeypatch.setattr("torch.distributed.init_process_group", lambda _: None)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    with join_processes("auto") as processes:
        assert (processes.rank, processes.world, processes.device.index) == expected
        assert chosen == [processes.device]
