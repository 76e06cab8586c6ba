"""Contract: options and folder determine a run bit by bit, also after any kill. Training reduces the loss, and invalid
inputs are named.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.relabel_train.reference.runs import Run, assert_same, child, lines, state

from relabel.stages import Project
from relabel_train.reference.data import open_corpus_features, read_split
from relabel_train.reference.fit import BEST, fit, load_model
from relabel_train.reference.models import Vocabulary
from relabel_train.reference.options import FitError, FitOptions


def fitted(options: FitOptions) -> dict[str, Any]:
    """Train, and return the checkpoint."""
    fit(options, "cpu")
    return state(options)


def logged(options: FitOptions, kind: str, name: str) -> list[float]:
    return [line[name] for line in lines(options) if line["kind"] == kind]


def test_training_reduces_the_loss_and_reports_it(run: Run) -> None:
    options = run(epochs=12, lr=0.02)
    result = fit(options, "cpu")
    log, losses, rsums = lines(options), logged(options, "train", "loss"), logged(options, "evaluation", "rsum")
    assert losses[-1] < losses[0] / 2
    assert len(rsums) == 12
    assert result.best == max(rsums) > rsums[0]
    assert result.finished
    model, about = load_model(options.out)
    assert (about["position"]["best"], model.training) == (result.best, False)
    assert fit(options, "cpu").step == result.step  # finished: nothing is repeated
    assert lines(options) == log


SAM = {"loss": ("sam",), "loss_kwargs": ("sampling=random",), "save_every": 2}
SIGMOID = {"loss": ("graded_sigmoid",), "loss_kwargs": ("labels=cosine",)}
SAF = {"model": "saf", "loss": ("smooth_ndcg_triplet",), "save_every": 2}
GRADED = {"model": "vse_inf", "sampler": "graded", "sampler_kwargs": ("group=4", "depth=8"), "decay_at": 1}
DECAY = {**SIGMOID, "weight_decay": 0.1}
SLOW = [pytest.param(changed, marks=pytest.mark.slow) for changed in (DECAY, SAF, GRADED)]


@pytest.mark.parametrize("changed", [SAM, *SLOW])
def test_a_killed_run_equals_an_uninterrupted_one(run: Run, changed: dict[str, Any]) -> None:
    options, unbroken = (run(name, **{"save_every": 3, **changed}) for name in ("killed", "unbroken"))
    with subprocess.Popen(child(options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 7:"):
                process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
    assert process.returncode == -signal.SIGKILL, error
    assert 0 < state(options)["position"]["step"] < 7
    assert_same(fitted(options), fitted(unbroken))
    assert_same(state(options, BEST), state(unbroken, BEST))
    assert lines(options) == lines(unbroken)


def test_a_run_without_improvement_stops(run: Run) -> None:
    options = run(epochs=50, lr=1e-12, patience=2, evaluate_every=3)
    result = fit(options, "cpu")
    rsums = logged(options, "evaluation", "rsum")
    assert (result.finished, result.step) == (True, 9)
    assert rsums[0] >= max(rsums[1:])
    assert fit(options, "cpu").step == 9


def test_lower_precisions(run: Run) -> None:
    """Check bfloat16, and that a gradient that is not finite is null: the first steps of float16 overflow."""
    full, half, least = (run(name, epochs=1, precision=name) for name in ("float32", "bfloat16", "float16"))
    for options in (full, half, least):
        fit(options, "cpu")
    losses = [logged(options, "train", "loss") for options in (full, half)]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.1)
    for line in (least.out / "log.jsonl").read_text(encoding="utf-8").splitlines():
        assert json.loads(line, parse_constant=pytest.fail)["kind"] in ("train", "evaluation")


def test_warm_up_is_the_summed_triplet_loss_which_needs_no_labels(run: Run) -> None:
    warm = run("warm", triplet_epochs=1, epochs=1, loss=("soft_target",))
    triplet = run("sum", epochs=1, lookup=None, loss_kwargs=("negatives=sum",))
    assert_same(fitted(warm)["model"], fitted(triplet)["model"])


def test_scale_and_bias_of_a_loss_are_trained_without_decay(run: Run) -> None:
    """Check that both move from SigLIP's start, stay fixed if not learnable, and are not drawn to 0 by weight decay."""
    name = "losses.graded_sigmoid."
    learned = fitted(run(epochs=2, lr=0.01, **SIGMOID))["objective"]
    assert learned[f"{name}log_scale"].item() != pytest.approx(math.log(10), abs=1e-3)
    assert learned[f"{name}bias"].item() > -9.95  # random pairs have labels around 0.5
    fixed = run("fixed", epochs=1, loss=("graded_sigmoid",), loss_kwargs=("labels=cosine", "learnable=false"))
    kept = fitted(fixed)["objective"]
    assert [kept[f"{name}log_scale"].exp().item(), kept[f"{name}bias"].item()] == pytest.approx([10, -10], rel=1e-6)
    # At a learning rate of 0.01, a decay of 10 takes a tenth of a value per step; the rest of a step is at most 0.01.
    decayed = fitted(run("decayed", epochs=1, lr=0.01, weight_decay=10.0, **SIGMOID))
    most = 0.011 * decayed["position"]["step"]
    assert decayed["objective"][f"{name}bias"].item() == pytest.approx(-10, abs=most)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lookup": None, "loss": ("bcls",)}, "--lookup"),
        ({"model": "sgr", "loss": ("log_ratio",)}, "log_ratio .*; sgr "),
        ({"batch_size": 1000, "sampler_kwargs": ("drop_last=true",)}, "batch of 1000"),
        ({"loss": ("graded_sigmoid",)}, r"graded_sigmoid .* 0\.\.1, .* -1\.\.1"),
    ],
)
def test_untrainable_inputs_are_named_before_training(run: Run, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit(run(**changed), "cpu")


def test_options_and_content_of_labels_identify_a_run(run: Run, small_project: Project, tmp_path: Path) -> None:
    """Check that more epochs and a moved lookup continue a run, and that other labels under the same path do not."""
    moved = tmp_path / "lookup"
    shutil.copytree(small_project.folder("exports", "all", "lookup", "cbow"), moved)
    fit(run(epochs=1), "cpu")
    assert_same(fitted(run(epochs=2, lookup=moved))["model"], fitted(run("unbroken"))["model"])
    shutil.rmtree(moved)
    shutil.copytree(small_project.folder("exports", "all", "lookup", "cider"), moved)
    for changed, said in (({"lookup": moved}, r"\(lookup was "), ({"lr": 0.1}, r"\(lr was 0\.0005, is 0\.1\)")):
        with pytest.raises(FitError, match=rf"last\.pt: .*{said}"):
            fit(run(epochs=2, **changed), "cpu")


@pytest.mark.parametrize("sampler", ["random", "graded"])
def test_a_run_with_a_fraction_trains_on_these_images_and_records_them(run: Run, sampler: str) -> None:
    """Check the number of batches and the words of a share; the share of another seed or size is another run."""
    options = run(fraction=0.4, seed=3, batch_size=8, sampler=sampler)
    features = open_corpus_features(options.features, options.captions, options.ids)
    split = read_split(options.captions, "train", features)
    share = split.sample(0.4, 3)
    checkpoint = fitted(options)
    assert checkpoint["identity"]["captions"] == share.digest() != split.digest()
    assert checkpoint["identity"]["fraction"] == checkpoint["options"]["fraction"] == 0.4
    if sampler == "random":
        assert checkpoint["position"]["step"] == 2 * math.ceil(len(share.caption_ids) / 8)
    vocabulary = json.loads((options.out / "vocabulary.json").read_text(encoding="utf-8"))
    assert vocabulary == json.loads(Vocabulary.of(share.texts, 1).to_json())
    with pytest.raises(FitError, match=r"captions was .*fraction was 0\.4, is 0\.5"):
        fit(options.model_copy(update={"fraction": 0.5}), "cpu")


def test_a_fraction_of_precomputed_batches_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"fraction=0\.5 .*give --lookup"):
        run(fraction=0.5, lookup=None, batches=tmp_path)


@pytest.mark.parametrize("name", ["best.pt", "vocabulary.json", "log.jsonl"])
def test_files_of_another_program_are_not_overwritten(name: str, run: Run) -> None:
    options = run(epochs=1)
    options.out.mkdir(parents=True)
    (options.out / name).write_text("mine")
    with pytest.raises(FitError, match=name):
        fit(options, "cpu")
    assert [(p.name, p.read_text()) for p in options.out.iterdir()] == [(name, "mine")]
