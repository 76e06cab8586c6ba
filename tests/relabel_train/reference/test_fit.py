"""Contract: options and folder determine a run bit by bit, also after any kill. Training reduces the loss, and invalid
inputs are named.
"""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.relabel_train.reference.runs import assert_same, child, lines, state

from relabel.stages import Project
from relabel_train.reference.fit import BEST, LAST, fit, load_model
from relabel_train.reference.options import FitError, FitOptions

pytestmark = pytest.mark.usefixtures("one_thread")


def test_training_reduces_the_loss_and_reports_it(run: Callable[..., FitOptions]) -> None:
    messages: list[str] = []
    options = run(epochs=12, lr=0.02)
    result = fit(options, "cpu", messages.append)
    log = lines(options)
    losses = [line["loss"] for line in log if line["kind"] == "train"]
    rsums = [line["rsum"] for line in log if line["kind"] == "evaluation"]
    assert losses[-1] < losses[0] / 2
    assert len(rsums) == 12
    assert result.best == max(rsums) > rsums[0]
    assert result.finished
    assert any("RSUM" in line for line in messages)
    model, about = load_model(options.out)
    assert about["position"]["best"] == result.best
    assert not model.training
    assert fit(options, "cpu").step == result.step  # finished: nothing is repeated
    assert lines(options) == log


@pytest.mark.parametrize(
    ("changed", "killed_at"),
    [
        ({"loss": ("sam",), "loss_kwargs": ("sampling=random",), "save_every": 2}, "step 5:"),
        ({"loss": ("graded_sigmoid",), "loss_kwargs": ("labels=cosine",), "weight_decay": 0.1}, "step 5:"),
        pytest.param(
            {"model": "saf", "loss": ("smooth_ndcg_triplet",), "save_every": 2}, "step 5:", marks=pytest.mark.slow
        ),
        pytest.param(
            {"model": "vse_inf", "sampler": "graded", "sampler_kwargs": ("group=4", "depth=8"), "decay_at": 1},
            "step 7:",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_killed_run_equals_an_uninterrupted_one(
    run: Callable[..., FitOptions], changed: dict[str, Any], killed_at: str
) -> None:
    options, unbroken = (run(name, **{"save_every": 3, **changed}) for name in ("killed", "unbroken"))
    with subprocess.Popen(child(options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(killed_at):
                process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
    assert process.returncode == -signal.SIGKILL, error
    at = state(options)["position"]
    assert 0 < at["step"] < int(killed_at.split()[1].rstrip(":"))
    fit(options, "cpu")
    fit(unbroken, "cpu")
    for name in (LAST, BEST):
        a, b = state(options, name), state(unbroken, name)
        assert_same(a, b, name)
    assert lines(options) == lines(unbroken)


def test_more_epochs_continue_a_run(run: Callable[..., FitOptions]) -> None:
    short, long = run("short", epochs=1), run("long", epochs=3, evaluate_every=4)
    fit(short, "cpu")
    fit(short.model_copy(update={"epochs": 3}), "cpu")
    fit(long.model_copy(update={"evaluate_every": 0}), "cpu")
    assert_same(state(short)["model"], state(long)["model"])


def test_a_run_without_improvement_stops(run: Callable[..., FitOptions]) -> None:
    options = run(epochs=50, lr=1e-12, patience=2, evaluate_every=3)
    result = fit(options, "cpu")
    rsums = [line["rsum"] for line in lines(options) if line["kind"] == "evaluation"]
    assert result.finished
    assert result.step == 9
    assert rsums[0] >= max(rsums[1:])
    assert fit(options, "cpu").step == 9


def test_scale_and_bias_of_a_loss_are_trained_without_decay(run: Callable[..., FitOptions]) -> None:
    """Check that both move from SigLIP's start, stay fixed if not learnable, and are not drawn to 0 by weight decay."""
    options = run(epochs=2, lr=0.01, loss=("graded_sigmoid",), loss_kwargs=("labels=cosine",))
    fit(options, "cpu")
    learned = state(options)["objective"]
    scale, bias = (learned[f"losses.graded_sigmoid.{name}"].item() for name in ("log_scale", "bias"))
    assert scale != pytest.approx(math.log(10), abs=1e-3)
    assert bias > -9.95  # random pairs have labels around 0.5
    fixed = run("fixed", epochs=1, loss=("graded_sigmoid",), loss_kwargs=("labels=cosine", "learnable=false"))
    fit(fixed, "cpu")
    kept = state(fixed)["objective"]
    assert kept["losses.graded_sigmoid.bias"].item() == -10
    # At a learning rate of 0.01, a decay of 10 takes a tenth of a value per step; the rest of a step is at most 0.01.
    decayed = run("decayed", epochs=1, lr=0.01, weight_decay=10.0, loss=options.loss, loss_kwargs=options.loss_kwargs)
    steps = fit(decayed, "cpu").step
    assert state(decayed)["objective"]["losses.graded_sigmoid.bias"].item() == pytest.approx(-10, abs=0.011 * steps)


def test_labels_out_of_a_losss_range_are_named_before_training(run: Callable[..., FitOptions]) -> None:
    with pytest.raises(FitError, match=r"graded_sigmoid reads labels in 0\.\.1, and these are in -1\.\.1"):
        fit(run(loss=("graded_sigmoid",)), "cpu")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"labels": None, "loss": ("bcls",)}, "give --labels"),
        ({"model": "scan"}, "no model 'scan'"),
        ({"model": "sgr", "loss": ("log_ratio",)}, "log_ratio and dense_triplet compare embeddings; sgr has a set"),
        ({"batch_size": 1000, "sampler_kwargs": ("drop_last=true",)}, "no batch of 1000"),
    ],
)
def test_untrainable_inputs_are_named(run: Callable[..., FitOptions], changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit(run(**changed), "cpu")


def test_another_run_is_not_resumed(run: Callable[..., FitOptions]) -> None:
    fit(run(epochs=1), "cpu")
    with pytest.raises(FitError, match=r"last\.pt: another run \(lr was 0\.0005, is 0\.1\)"):
        fit(run(epochs=1, lr=0.1), "cpu")


def test_a_run_is_identified_by_the_content_of_its_labels(
    run: Callable[..., FitOptions], small_project: Project, tmp_path: Path
) -> None:
    """Check that a moved lookup resumes, and that other labels under the same path do not."""
    moved = tmp_path / "lookup"
    shutil.copytree(small_project.folder("exports", "all", "lookup", "cbow"), moved)
    fit(run(epochs=1), "cpu")
    assert fit(run(epochs=2, labels=moved), "cpu").epoch == 2
    shutil.rmtree(moved)
    shutil.copytree(small_project.folder("exports", "all", "lookup", "cider"), moved)
    with pytest.raises(FitError, match=r"last\.pt: another run \(labels was "):
        fit(run(epochs=2, labels=moved), "cpu")


@pytest.mark.parametrize("name", ["best.pt", "vocabulary.json", "log.jsonl"])
def test_files_of_another_program_are_not_overwritten(name: str, run: Callable[..., FitOptions]) -> None:
    options = run(epochs=1)
    options.out.mkdir(parents=True)
    (options.out / name).write_text("mine")
    with pytest.raises(FitError, match=rf"{name}: not of a run"):
        fit(options, "cpu")
    assert [(p.name, p.read_text()) for p in options.out.iterdir()] == [(name, "mine")]
