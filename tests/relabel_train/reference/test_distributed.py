"""Contract: several processes compute the gradients of one, each on a device of its own, and train under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tests.relabel_train.reference.runs import PROGRAM, assert_same, child, state
from tests.relabel_train.reference.transformer_folder import write_transformer

from relabel_train.reference.files import load_checkpoint
from relabel_train.reference.options import FitOptions

pytestmark = pytest.mark.usefixtures("one_thread")

RUNS: dict[str, dict[str, Any]] = {
    "triplet": {},
    "vse_inf": {"model": "vse_inf"},
    "sgr": {"model": "sgr"},
    "saf": {"model": "saf", "loss": ("bcls",)},
    "sam": {"loss": ("sam",), "loss_kwargs": ("sampling=random",)},
    "log_ratio": {"loss": ("log_ratio",)},
    "graded_sigmoid": {"loss": ("graded_sigmoid",), "loss_kwargs": ("labels=cosine",)},
}


def torchrun(*arguments: str, folder: Path | None = None) -> str:
    """Run two processes on this machine, in a folder, and return their output."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def fit_under_torchrun(options: FitOptions, **more: str) -> str:
    """Run `relabel fit` of a tiny model in two processes and return its output."""
    values = {"data": options.data, "captions": options.captions, "out": options.out, "labels": options.labels}
    values |= {
        "namespace": "coco",
        "batch_size": 15,
        "epochs": 1,
        "embed_dim": 12,
        "word_dim": 6,
        "min_count": 1,
        **more,
    }
    verb = [str(Path(sys.executable).with_name("relabel")), "fit"]
    own = [f"--device={values.pop('device')}"] if "device" in values else []
    # The parameter file of this repository does not describe the labels.
    folder = options.out.parent
    return torchrun("--no-python", *verb, *own, *(f"--set={n}={v}" for n, v in values.items()), folder=folder)


@pytest.mark.slow
def test_two_processes_compute_the_gradients_of_one(run: Callable[..., FitOptions], tmp_path: Path) -> None:
    options = {name: run(name, epochs=1, batch_size=15, **more) for name, more in RUNS.items()}
    values = {name: one.model_dump(mode="json") for name, one in options.items()}
    (tmp_path / "told.json").write_text(json.dumps(values), encoding="utf-8")
    torchrun(str(Path(__file__).with_name("two_processes.py")), str(tmp_path))
    for name in options:
        first, second, alone = (
            load_checkpoint(tmp_path / f"{name}-{part}.pt") for part in ("0-of-2", "1-of-2", "alone")
        )
        assert alone["loss"] == pytest.approx(first["loss"], rel=1e-5)
        for key, gradient in alone["gradients"].items():
            torch.testing.assert_close(first["gradients"][key], gradient, rtol=1e-4, atol=1e-6, msg=f"{name} {key}")
        for key, value in alone["running"].items():
            torch.testing.assert_close(first["running"][key], value, rtol=1e-5, atol=1e-6, msg=f"{name} {key}")
        # Also of a loss's own parameters, which are not averaged: both processes see the complete batch.
        assert_same(first, second, name)
    assert any(gradient.any() for key, gradient in alone["gradients"].items() if key.startswith("losses."))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_two_processes_train_a_transformer(
    kind: Literal["bert", "roberta"], run: Callable[..., FitOptions], tmp_path: Path
) -> None:
    """Check that every parameter gets a gradient: DistributedDataParallel stops at the second step otherwise."""
    write_transformer(tmp_path, kind)
    options = run(model="vse_inf", text=str(tmp_path), loss=("bcls",), batch_size=15, epochs=1)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    torchrun(str(tmp_path / "program.py"), child(options)[-1])
    assert state(options)["position"]["step"] > 2


@pytest.mark.slow
def test_relabel_fit_runs_under_torchrun(run: Callable[..., FitOptions]) -> None:
    options = run(epochs=1, batch_size=15)
    output = fit_under_torchrun(options, device="cpu")
    assert output.count("best RSUM") == 1  # only the first process prints
    assert state(options)["position"]["epoch"] == 1
    assert state(options)["identity"]["world"] == 2
