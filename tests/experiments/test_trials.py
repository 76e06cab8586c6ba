"""Contract: a trial runs once and is recorded once, with the figures of a separate run; a search never reads the test
split. Ctrl-C while trials start prints one line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.relabel_cli.test_interrupted import is_interrupt
from tests.relabel_train.training.conftest import one_thread, regions, run
from tests.relabel_train.training.test_evaluate import held

from experiments.fit_table.trials import Trial, TrialFile, average_trial, run_trial, run_trials
from relabel.core.errors import CheckError
from relabel.stages import Project
from relabel_train.evaluate import evaluate
from relabel_train.training.options import FitError, FitOptions

ROOT = Path(__file__).parents[2]
__all__ = ["one_thread", "regions", "run"]  # fixtures
pytestmark = pytest.mark.usefixtures("one_thread")

TRIALS = """
import signal
from pathlib import Path
from relabel_cli.interrupt import exit_on_interrupt
from experiments.fit_table.trials import Trial, TrialFile, run_trials
from relabel_train.training.options import EvalOptions, FitOptions
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exit_on_interrupt()
    print("ready", flush=True)
    here = Path(".")
    fit = FitOptions(data=here, captions=here, out=here)
    run_trials([Trial(str(i), {}, fit, None) for i in range(2)], TrialFile(here / "trials.jsonl"), 2, lambda _: {})
"""


def rsum(evaluation: Any) -> dict[str, float | None]:
    return {"RSUM": evaluation["retrieval"]["figures"]["all"]["rsum_percent"]["both"]}


def test_finished_trials_are_recorded_and_not_repeated(
    run: Callable[..., FitOptions], small_project: Project, tmp_path: Path
) -> None:
    label = small_project.layout.lookup("all", "cider")
    final = Trial("a", {"row": "x"}, run("a", epochs=1), held(run("a"), labels=(label,)))
    search = Trial("b", {"row": "y"}, run("b", epochs=1, seed=1), None)
    path, new = tmp_path / "trials.jsonl", list[dict[str, Any]]()
    run_trials([final, search], TrialFile(path), 1, rsum, new.append)
    records = TrialFile(path).records
    assert records == {record["key"]: record for record in new}
    alone = run_trial(Trial("a", {}, run("alone", epochs=1), held(run("alone"), labels=(label,))))
    assert records["a"]["figures"] == rsum(alone["evaluation"])
    assert records["a"]["val"] == alone["val"]
    assert "figures" not in records["b"]
    assert final.train.out.is_dir()
    assert not search.train.out.exists()
    before = path.read_bytes()
    run_trials([final, search], TrialFile(path), 1, rsum, lambda _: pytest.fail("a trial runs again"))
    assert path.read_bytes() == before


def test_an_average_is_that_of_its_parts(run: Callable[..., FitOptions], small_project: Project) -> None:
    """Check SGRAF: the evaluation is that of `average`, and finished parts are not trained again."""
    label = small_project.layout.lookup("all", "cider")
    parts = [
        Trial(name, {"model": name, "row": "x", "lr": 0.1, "value": 2.0}, options, held(options, labels=(label,)))
        for name in ("sgr", "saf")
        for options in [run(name, model=name, epochs=1)]
    ]
    made = average_trial("sgraf", parts)
    assert made.key not in {part.key for part in parts}
    assert made.facts == {"model": "sgraf", "row": "x", "lr": None, "value": None}
    alone = [run_trial(part) for part in parts]
    written = [(part.train.out / "last.npz").stat().st_mtime_ns for part in parts]
    result = run_trial(made)
    assert [(part.train.out / "last.npz").stat().st_mtime_ns for part in parts] == written
    assert (result["val"], result["steps"]) == (None, sum(each["steps"] for each in alone))
    options = held(parts[0].train, labels=(label,), average=(parts[1].train.out,))
    assert result["evaluation"] == evaluate(options, "cpu").to_json()


def test_a_search_that_diverges_has_no_score(run: Callable[..., FitOptions]) -> None:
    """Check a learning rate at which the loss overflows: it is a result of a search, and an error of a final run."""
    # One step of 1000 takes the logarithm of the loss's scale beyond that of the largest float32.
    options = run(loss=("graded_sigmoid",), loss_set=("labels=cosine",), lr=1000.0)
    assert run_trial(Trial("a", {}, options, None))["val"] is None
    with pytest.raises(FitError, match="the loss is"):
        run_trial(Trial("a", {}, replace(options, out=options.out.with_name("b")), held(options)))


def test_an_incomplete_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    TrialFile(path).add({"key": "a", "val": 1.0})
    complete = path.read_bytes()
    path.write_bytes(complete + b'{"key": "b", "v')
    records = TrialFile(path)
    assert list(records.records) == ["a"]
    records.add({"key": "c", "val": None})
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "c"]
    path.write_bytes(b"[3]\n" + complete)
    with pytest.raises(CheckError, match="line 1 is no record of a trial"):
        TrialFile(path)


@pytest.mark.parametrize("wait", [0.0, 0.3, 0.8])
def test_starting_trials_print_nothing(wait: float, tmp_path: Path) -> None:
    (tmp_path / "trials.py").write_text(TRIALS)
    command, pipe = [sys.executable, "trials.py"], subprocess.PIPE
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    }
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, process_group=0, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == "r"
    time.sleep(wait)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert is_interrupt(stderr), stderr
