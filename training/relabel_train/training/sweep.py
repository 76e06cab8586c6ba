"""Trials: runs that are trained and evaluated, several in parallel, each once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from relabel_train.training.interrupts import blocked_interrupts, end_on_interrupt
from relabel_train.training.options import EvalOptions, FitOptions

RESULT = "result.json"


@dataclass(frozen=True)
class Trial:
    """A training run and its evaluation.

    Attributes
    ----------
    name : str
    train : FitOptions
    held : EvalOptions
    """

    name: str
    train: FitOptions
    held: EvalOptions


def run_trials(
    trials: Sequence[Trial], workers: int, notify: Callable[[str, bool], None] = lambda _, __: None
) -> dict[str, Any]:
    """Run trials on the CPU, `workers` at a time, each on one thread, so that figures do not depend on their number.

    Trials with a result are skipped, interrupted ones resume. All trials finish before the error of one is raised.

    Parameters
    ----------
    trials : sequence of Trial
    workers : int
    notify : callable
        Called with the name of each finished trial, and True if it was finished before.

    Returns
    -------
    dict of str to the result of each: `training` (TrainState) and `evaluation` (Evaluation.to_json)
    """
    results: dict[str, Any] = {}
    todo = []
    for trial in trials:
        path = trial.train.out / RESULT
        if path.is_file():
            results[trial.name] = json.loads(path.read_text(encoding="utf-8"))
            notify(trial.name, True)
        else:
            todo.append(trial)
    errors: list[BaseException] = []
    # Spawned, since a forked process that has used torch's threads may never answer.
    context = get_context("spawn")
    with ProcessPoolExecutor(max(1, workers), mp_context=context, initializer=end_on_interrupt) as pool:
        with blocked_interrupts():  # a starting interpreter answers Ctrl-C with a traceback
            started = {pool.submit(run_trial, trial): trial.name for trial in todo}
        try:
            for future in as_completed(started):
                error = future.exception()
                if error is not None:
                    errors.append(error)
                    continue
                results[started[future]] = future.result()
                notify(started[future], False)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if errors:
        raise errors[0]
    return results


def run_trial(trial: Trial) -> dict[str, Any]:
    """Train, evaluate, write `result.json`."""
    import torch

    from relabel_train.evaluate import evaluate
    from relabel_train.fit import fit

    # Sums of several threads have other last bits: figures must not depend on the number of workers.
    torch.set_num_threads(1)
    position = fit(trial.train, "cpu")
    body = {"training": position.__dict__, "evaluation": evaluate(trial.held, "cpu").to_json()}
    path: Path = trial.train.out / RESULT
    # A result exists completely or not at all: trials with one are skipped.
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return body
