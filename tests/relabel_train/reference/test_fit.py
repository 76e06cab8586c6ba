"""Contract: options and folder determine a run bit by bit, also after any kill. Training reduces the loss, and invalid
inputs are named.
"""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.relabel_train.reference.runs import Run, assert_same, child, lines, state

from relabel.stages import Session
from relabel_train.reference.data import open_corpus_features, read_split
from relabel_train.reference.fit import fit
from relabel_train.reference.models.base import Vocabulary
from relabel_train.reference.options import FitError, FitOptions
from relabel_train.reference.runs import BEST, load_checkpoint, load_model


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
    assert load_checkpoint(options.out / BEST)["progress"]["best"] == result.best
    assert not load_model(options.out).training
    assert fit(options, "cpu").step == result.step  # finished: nothing is repeated
    assert lines(options) == log


SAM = {"loss": {"name": "sam", "sampling": "random"}}
SIGMOID = {"loss": {"name": "graded_sigmoid", "labels": "cosine"}}
SAF = {"model": "saf", "loss": "smooth_ndcg_triplet"}
GRADED = {"model": "vse_inf", "sampler": {"name": "graded", "group": 4}, "decay_at": 1}
DECAY = {**SIGMOID, "weight_decay": 0.1}
SLOW = [pytest.param(changed, marks=pytest.mark.slow) for changed in (DECAY, SAF, GRADED)]


@pytest.mark.parametrize("changed", [SAM, *SLOW])
def test_a_killed_run_equals_an_uninterrupted_one(run: Run, changed: dict[str, Any]) -> None:
    """Kill it after a checkpoint within an epoch."""
    options, unbroken = (run(name, epochs=3, evaluate_every=4, **changed) for name in ("killed", "unbroken"))
    with subprocess.Popen(child(options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 9:"):
                process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
    assert process.returncode == -signal.SIGKILL, error
    progress = state(options)["progress"]
    assert progress["done"] > 0 < progress["step"]
    assert_same(fitted(options), fitted(unbroken))
    assert_same(state(options, BEST), state(unbroken, BEST))
    assert lines(options) == lines(unbroken)


def test_a_run_without_improvement_stops(run: Run) -> None:
    options = run(epochs=50, lr=1e-12, patience=2, evaluate_every=3)
    result = fit(options, "cpu")
    rsums = logged(options, "evaluation", "rsum")
    assert result.step == 9
    assert rsums[0] >= max(rsums[1:])
    assert fit(options, "cpu").step == 9


def test_bfloat16_is_close_to_float32(run: Run) -> None:
    full, half = (run(name, epochs=1, precision=name) for name in ("float32", "bfloat16"))
    for options in (full, half):
        fit(options, "cpu")
    losses = [logged(options, "train", "loss") for options in (full, half)]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.1)


def test_warm_up_is_the_summed_triplet_loss_which_needs_no_labels(run: Run) -> None:
    warm = run("warm", triplet_epochs=1, epochs=1, loss="soft_target")
    triplet = run("sum", epochs=1, lookup=None, loss={"name": "triplet", "negatives": "sum"})
    assert_same(fitted(warm)["model"], fitted(triplet)["model"])


def test_scale_and_bias_of_a_loss_are_trained_without_decay(run: Run) -> None:
    """Check that both move from SigLIP's start, stay fixed if not learnable, and are not drawn to 0 by weight decay."""
    name = "losses.0."
    learned = fitted(run(epochs=2, lr=0.01, **SIGMOID))["objective"]
    assert learned[f"{name}log_scale"].item() != pytest.approx(math.log(10), abs=1e-3)
    assert learned[f"{name}bias"].item() > -9.95  # random pairs have labels around 0.5
    fixed = run("fixed", epochs=1, loss={"name": "graded_sigmoid", "labels": "cosine", "learnable": False})
    kept = fitted(fixed)["objective"]
    assert [kept[f"{name}log_scale"].exp().item(), kept[f"{name}bias"].item()] == pytest.approx([10, -10], rel=1e-6)
    # At a learning rate of 0.01, a decay of 10 takes a tenth of a value per step; the rest of a step is at most 0.01.
    decayed = fitted(run("decayed", epochs=1, lr=0.01, weight_decay=10.0, **SIGMOID))
    most = 0.011 * decayed["progress"]["step"]
    assert decayed["objective"][f"{name}bias"].item() == pytest.approx(-10, abs=most)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lookup": None, "loss": "bcls"}, "--lookup"),
        ({"model": "sgr", "loss": {"name": "log_ratio", "triplet": 1}}, "log_ratio compares embeddings"),
        ({"loss": "log_ratio"}, "log_ratio .*RSUM cannot select"),
        ({"loss": "graded_sigmoid"}, r"graded_sigmoid .* 0\.\.1, .* -1\.\.1"),
        ({"model": "vse"}, "no model 'vse'; there are vsepp"),
    ],
)
def test_untrainable_inputs_are_named_before_training(run: Run, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit(run(**changed), "cpu")


def test_options_and_content_of_labels_identify_a_run(run: Run, small_project: Session, tmp_path: Path) -> None:
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
    features = open_corpus_features(options.features, options.captions)
    split = read_split(options.captions, "train", features)
    share = split.sample(0.4, 3)
    checkpoint = fitted(options)
    assert checkpoint["identity"]["captions"] == share.digest() != split.digest()
    assert checkpoint["identity"]["fraction"] == 0.4
    if sampler == "random":
        assert checkpoint["progress"]["step"] == 2 * math.ceil(len(share.caption_ids) / 8)
    assert checkpoint["words"] == Vocabulary.of(share.texts, 1).words
    with pytest.raises(FitError, match=r"captions was .*fraction was 0\.4, is 0\.5"):
        fit(options.model_copy(update={"fraction": 0.5}), "cpu")


def test_a_fraction_of_precomputed_batches_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="omit --lookup and `fraction`"):
        run(fraction=0.5, lookup=None, batches=tmp_path)


def test_a_name_and_a_choice_are_one_run(run: Run) -> None:
    """Check that parameters without a name are of the default, as `--set loss.margin=0.1` gives them."""
    assert run(loss="bcls") == run(loss={"name": "bcls"})
    assert run(loss={"margin": 0.1}) == run(loss={"name": "triplet", "margin": 0.1})
    assert FitOptions.model_validate_json(run(loss=["sam", "triplet"]).model_dump_json()) == run(
        loss=["sam", "triplet"]
    )


@pytest.mark.parametrize("name", ["best.pt", "log.jsonl", "notes.txt"])
def test_files_of_another_program_are_not_overwritten(name: str, run: Run) -> None:
    options = run(epochs=1)
    options.out.mkdir(parents=True)
    (options.out / name).write_text("mine")
    with pytest.raises(FitError, match=name):
        fit(options, "cpu")
    assert [(p.name, p.read_text()) for p in options.out.iterdir()] == [(name, "mine")]
