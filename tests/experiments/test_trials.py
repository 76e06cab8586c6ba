"""Contract: trials run once and have the figures of separate runs; Ctrl-C while they start prints one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.relabel_cli.test_interrupted import is_interrupt
from tests.relabel_train.training.conftest import regions, run
from tests.relabel_train.training.test_evaluate import held, one_thread

from experiments.fit_table.trials import Trial, run_trial, run_trials
from relabel.stages import Project
from relabel_train.training.options import FitOptions

ROOT = Path(__file__).parents[2]
__all__ = ["one_thread", "regions", "run"]  # fixtures

TRIALS = """
import signal
from pathlib import Path
from relabel_cli.interrupt import exit_on_interrupt
from experiments.fit_table.trials import Trial, run_trials
from relabel_train.training.options import EvalOptions, FitOptions
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exit_on_interrupt()
    print("ready", flush=True)
    here = Path(".")
    fit = FitOptions(data=here, captions=here, out=here)
    run_trials([Trial(str(i), fit, EvalOptions(run=here, data=here, captions=here)) for i in range(2)], 2)
"""


def test_finished_trials_are_reused(run: Callable[..., FitOptions], small_project: Project) -> None:
    label = small_project.layout.lookup("all", "cider")
    trials = [Trial(n, run(n, epochs=1, seed=s), held(run(n), labels=(label,))) for n, s in (("a", 0), ("b", 1))]
    events: list[tuple[str, bool]] = []
    first = run_trial(trials[0])
    results = run_trials(trials, 1, lambda name, before: events.append((name, before)))
    assert results["a"] == first
    assert events == [("a", True), ("b", False)]
    assert set(results["b"]) == {"training", "evaluation"}
    assert results["b"]["training"]["finished"]


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
