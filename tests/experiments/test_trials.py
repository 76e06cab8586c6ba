"""Contract: a trial runs once and is recorded once, with the figures of a separate run and the RSUM of each image; a
search never reads the test split. A row with a fraction of the images takes as many steps as all others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel_train.conftest import one_thread
from tests.relabel_train.reference.conftest import regions, run

from experiments.fit_table import trials as module
from experiments.fit_table.search import Setting
from experiments.fit_table.trials import Inputs, Trial, TrialFile, image_sums, make_trial, run_trial, run_trials
from experiments.params import FitTableParams
from experiments.rows import Row
from relabel.core.runtime import Runtime
from relabel.stages import Session
from relabel_train.reference.options import FitOptions

__all__ = ["one_thread", "regions", "run"]  # fixtures
EVALUATION = {"images": 0, "graded": 6}
PARAMS = FitTableParams(judges=("cider",))


def test_the_parts_of_images_add_up_to_rsum() -> None:
    """Compare with ranks of loops: of an image's best caption, and of the image for each of its captions."""
    rng = np.random.default_rng(4)
    image = np.repeat(np.arange(30), 4)
    images, captions = rng.normal(size=(30, 5)), rng.normal(size=(120, 5))
    captions += images[image]
    scores = images @ captions.T
    expected = np.zeros(30)
    for i in range(30):
        order = np.argsort(-scores[i])
        rank = min(r for r, c in enumerate(order) if image[c] == i)
        expected[i] += sum(100 * (rank < k) for k in (1, 5, 10))
        for c in np.flatnonzero(image == i):
            rank = np.argsort(-scores[:, c]).tolist().index(i)
            expected[i] += sum(100 * (rank < k) for k in (1, 5, 10)) / 4
    assert 100 < expected.mean() < 500
    np.testing.assert_allclose(image_sums(scores, image), expected)


def test_a_fraction_takes_as_many_steps_and_changes_no_other_key() -> None:
    rows = {"all": Row(loss={"name": "triplet"}, triplet_epochs=1)}
    rows["tenth"] = rows["all"].model_copy(update={"fraction": 0.1})
    params = FitTableParams(rows=rows, epochs=6)
    trials = [make_trial(params, "vsepp", name, (-1.0, 1.0), Setting(0.002, None), 1, test=True) for name in rows]
    complete, tenth = (trial.training for trial in trials)
    changed = {"epochs": 60, "decay_at": 40, "triplet_epochs": 10, "fraction": 0.1}
    assert tenth == complete | changed
    # Options with their defaults are in no key: recorded trainings stay valid when an option is added.
    assert not {"fraction", "evaluate_every"} & set(complete)
    every = make_trial(
        params.model_copy(update={"evaluate_every": 7}), "vsepp", "all", (-1.0, 1.0), Setting(0.002, None), 1, test=True
    )
    assert every.training == complete | {"evaluate_every": 7}
    assert len({every.key, *(trial.key for trial in trials)}) == 3


@pytest.mark.slow
def test_finished_trials_are_recorded_and_not_repeated(
    run: Callable[..., FitOptions], regions: Path, small_project: Session, tmp_path: Path, monkeypatch: Any
) -> None:
    def make(key: str, evaluation: dict[str, Any] | None, **changed: Any) -> Trial:
        """Make the trial of a tiny run."""
        values = run(key, epochs=1, **changed).model_dump()
        given = ("features", "captions", "out", "lookup")
        training = {name: values[name] for name in values if name not in given}
        facts = {"model": training["model"]["name"], "row": "x", "lr": 0.1, "value": 2.0, "seed": 1}
        return Trial(key, facts, "cbow", training, evaluation)

    folder = small_project.folder
    lookups = {label: folder("exports", "all", "lookup", label) for label in ("cbow", "cider")}
    inputs = Inputs(regions, folder("corpus"), tmp_path, lookups, (lookups["cider"],), None)
    trials = [make("a", EVALUATION), make("b", None, seed=1)]
    path, runtime = tmp_path / "trials.jsonl", Runtime(threads=1)
    run_trials(trials, inputs, PARAMS, TrialFile(path), runtime)
    records = TrialFile(path).records
    alone = run_trial(make("alone", EVALUATION), inputs, PARAMS)
    assert records["a"]["figures"] == alone["figures"]
    assert records["a"]["val"] == alone["val"]
    assert len(records["a"]["images"]) == EVALUATION["graded"]
    assert np.mean(records["a"]["images"]) == pytest.approx(records["a"]["figures"]["RSUM"], abs=0.1)
    assert "figures" not in records["b"]
    before = path.read_bytes()
    monkeypatch.setattr(module, "run_trial", None)  # nothing is left to run
    run_trials(trials, inputs, PARAMS, TrialFile(path), runtime)
    assert path.read_bytes() == before
