"""Trials of the table: one training and one evaluation per row and seed, several in parallel, each once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.params import FitTableParams, Row
from relabel.core.errors import UsageError
from relabel.core.layout import check_name
from relabel.core.runtime import blocked_interrupts, end_on_interrupt
from relabel.sources.base import Source
from relabel.store.files import write_text
from relabel_train.training.options import EvalOptions, FitOptions

_CONFIGURED = {"smooth_ndcg": "labels", "smooth_ndcg_triplet": "labels"}
"""Losses that need the range of labels, and the parameter that gives it."""


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


@dataclass(frozen=True)
class Inputs:
    """Inputs of all trainings, and the folder of their outputs.

    Attributes
    ----------
    features, captions, runs : Path
    lookups : mapping of label to Path
    eccv : Path or None
    identity : str
        Digests of features, captions and lookups.
    """

    features: Path
    captions: Path
    runs: Path
    lookups: Mapping[str, Path]
    eccv: Path | None
    identity: str


def make_trials(
    params: FitTableParams, inputs: Inputs, sources: Mapping[str, type[Source[Any]]]
) -> dict[str, list[Trial]]:
    """Return the trials of each row, one per seed.

    Raises
    ------
    UsageError
        If a row names a label that is not among `fit_table.train_labels`, or its name cannot be a folder's.
    """
    return {
        name: [_trial(name, row, seed, params, inputs, sources) for seed in params.seeds]
        for name, row in params.all_rows().items()
    }


def _trial(
    name: str, row: Row, seed: int, params: FitTableParams, inputs: Inputs, sources: Mapping[str, type[Source[Any]]]
) -> Trial:
    label = row.label or params.train_labels[0]
    if label not in params.train_labels:
        raise UsageError(
            f"row {name} is trained with {label}", todo=f"Add it to fit_table.train_labels: {params.train_labels}."
        )
    low, top = sources[label].spec.bounds
    # The row's own settings have precedence over the range of its label.
    configured = {setting.partition("=")[0].rpartition(".")[2] for setting in row.loss_set}
    ranges = [
        f"{loss}.{_CONFIGURED[loss]}={'cosine' if low < 0 else 'unit'}"
        for loss in row.loss
        if loss in _CONFIGURED and _CONFIGURED[loss] not in configured
    ]
    training: dict[str, Any] = {
        "model": params.model,
        "loss": row.loss,
        "loss_set": (*row.loss_set, *ranges),
        "sampler": row.sampler,
        "scale": float(top),
        "batch_size": params.batch_size,
        "epochs": params.epochs,
        "decay_at": max(1, params.epochs * 2 // 3),
        "lr": params.lr,
        "embed": params.embed,
        "word": params.word,
        "seed": seed,
    }
    evaluation = {"label": label, "judge": params.judge, "ncs": params.ncs, "graded": params.graded}
    # Parameters of the evaluation are included: its figures are stored beside the training.
    digest = hashlib.sha256(json.dumps([training, evaluation, inputs.identity], sort_keys=True).encode()).hexdigest()
    folder = f"{name.replace(', ', '-').replace(' ', '_')}-{seed}-{digest[:12]}"
    out = inputs.runs / check_name("training", folder)
    train = FitOptions(
        data=inputs.features, captions=inputs.captions, out=out, labels=inputs.lookups[label], **training
    )
    judges = tuple(inputs.lookups[name] for name in dict.fromkeys((params.judge, params.ncs)))
    test = EvalOptions(
        run=out,
        data=inputs.features,
        captions=inputs.captions,
        labels=judges,
        graded=params.graded,
        eccv=inputs.eccv,
    )
    return Trial(f"{name}, seed {seed}", train, test)


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
    write_text(path, json.dumps(body, indent=1) + "\n")
    return body
