"""Contract: a trial runs once and is recorded once, with the figures of a separate run; a search never reads the test
split.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.relabel_train.conftest import one_thread
from tests.relabel_train.reference.conftest import regions, run

from experiments.fit_table import trials as module
from experiments.fit_table.trials import Inputs, Trial, TrialFile, run_trial, run_trials
from experiments.params import FitTableParams
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel_train.reference.options import FitOptions

__all__ = ["one_thread", "regions", "run"]  # fixtures
EVALUATION = {"images": 0, "graded": 6}
PARAMS = FitTableParams(judge="cider", ncs="cider")


@pytest.mark.slow
def test_finished_trials_are_recorded_and_not_repeated(
    run: Callable[..., FitOptions], regions: Path, small_project: Project, tmp_path: Path, monkeypatch: Any
) -> None:
    def make(key: str, evaluation: dict[str, Any] | None, **changed: Any) -> Trial:
        """Make the trial of a tiny run."""
        values = run(key, epochs=1, **changed).model_dump()
        training = {name: values[name] for name in values if name not in ("features", "captions", "out", "lookup")}
        facts = {"model": training["model"], "row": "x", "lr": 0.1, "value": 2.0, "seed": 1}
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
    assert "figures" not in records["b"]
    before = path.read_bytes()
    monkeypatch.setattr(module, "run_trial", None)  # nothing is left to run
    run_trials(trials, inputs, PARAMS, TrialFile(path), runtime)
    assert path.read_bytes() == before
