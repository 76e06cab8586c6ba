"""Trials of the table: trainings with one setting and seed, several in parallel, each recorded once in a file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.fit_table.search import Setting
from experiments.params import FitTableParams
from experiments.rows import Row
from relabel.core.errors import CheckError
from relabel.core.layout import check_name
from relabel.core.runtime import blocked_interrupts, end_on_interrupt, end_with_parent
from relabel.sources.base import Source
from relabel_train.training.options import DivergenceError, EvalOptions, FitOptions

_RANGED = ("smooth_ndcg", "smooth_ndcg_triplet", "graded_sigmoid")
"""Losses whose parameter `labels` is the range of labels."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A training run and the evaluation of its model, or several runs and the evaluation of their average.

    Attributes
    ----------
    key : str
        Digest of everything that determines the result.
    facts : dict of str to Any
        Model, row, setting and seed, as they are recorded.
    train : FitOptions
    held : EvalOptions or None
        None for a trial that chooses a setting: it never reads the test split.
    averaged : tuple of FitOptions
        Further runs, whose scores are averaged with those of `train`.
    """

    key: str
    facts: dict[str, Any]
    train: FitOptions
    held: EvalOptions | None
    averaged: tuple[FitOptions, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """Inputs of all trainings, and the folder of their outputs.

    Attributes
    ----------
    features, captions, runs : Path
    lookups : mapping of label to Path
    eccv : Path or None
    digests : mapping of str to str
        Identity of `features`, of `corpus` and of each label's lookup.
    sources : mapping of label to the class of its source
    """

    features: Path
    captions: Path
    runs: Path
    lookups: Mapping[str, Path]
    eccv: Path | None
    digests: Mapping[str, str]
    sources: Mapping[str, type[Source[Any]]]


def make_trial(
    params: FitTableParams, inputs: Inputs, model: str, name: str, setting: Setting, seed: int, test: bool
) -> Trial:
    """Return the trial of a row with one setting and seed.

    Parameters
    ----------
    params : FitTableParams
    inputs : Inputs
    model, name : str
        Model and row.
    setting : Setting
    seed : int
    test : bool
        Whether to evaluate on the test split.
    """
    row, budget = params.rows_of(model)[name], params.models[model]
    label = row.label or params.train_labels[0]
    loss, loss_set = row.at(setting.value)
    low, top = inputs.sources[label].spec.bounds
    epochs = budget.epochs or params.epochs
    training: dict[str, Any] = {
        "model": model,
        "loss": loss,
        "loss_set": (*loss_set, *_label_ranges(row, low)),
        "sampler": row.sampler,
        "scale": float(top),
        "batch_size": budget.batch_size or params.batch_size,
        "epochs": epochs,
        "decay_at": max(1, epochs * 2 // 3),
        "patience": params.patience,
        "lr": setting.lr,
        "embed": budget.embed,
        "word": budget.word,
        "seed": seed,
    }
    if row.warm_up:
        training["warm_up"] = row.warm_up
    judges = tuple(dict.fromkeys((params.judge, params.ncs)))
    names = ["features", "corpus", label, *(judges if test else ())]
    evaluation: dict[str, Any] | None = None
    if test:
        evaluation = {"judge": params.judge, "ncs": params.ncs, "graded": params.graded}
        evaluation |= {"images": budget.images} if budget.images else {}
    identity = [training, evaluation, {name: inputs.digests[name] for name in names}]
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    out = inputs.runs / check_name("training", f"{model}-{name.replace(', ', '-').replace(' ', '_')}-{seed}-{key}")
    train = FitOptions(
        data=inputs.features, captions=inputs.captions, out=out, labels=inputs.lookups[label], **training
    )
    held = EvalOptions(
        run=out,
        data=inputs.features,
        captions=inputs.captions,
        labels=tuple(inputs.lookups[judge] for judge in judges),
        images=budget.images,
        graded=params.graded,
        eccv=None if budget.images else inputs.eccv,
    )
    facts = {"model": model, "row": name, "lr": setting.lr, "value": setting.value, "seed": seed}
    return Trial(key, facts, train, held if test else None)


def average_trial(model: str, parts: Sequence[Trial]) -> Trial:
    """Return the trial of the mean of the scores of several models.

    Parameters
    ----------
    model : str
        Name of the average.
    parts : sequence of Trial
        Trials of one row and seed that are evaluated on the test split.
    """
    first, *further = parts
    assert first.held is not None
    key = hashlib.sha256(json.dumps([part.key for part in parts]).encode()).hexdigest()[:16]
    facts = {**first.facts, "model": model, "lr": None, "value": None}
    averaged = tuple(part.train for part in further)
    return Trial(key, facts, first.train, replace(first.held, average=tuple(each.out for each in averaged)), averaged)


def _label_ranges(row: Row, low: float) -> tuple[str, ...]:
    """Return the parameters that tell losses the range of their labels, where the row does not set them."""
    configured = {setting.partition("=")[0].rpartition(".")[2] for setting in row.loss_set}
    names = [item.partition(":")[0] for item in row.loss]
    found = "cosine" if low < 0 else "unit"
    return tuple(f"{loss}.labels={found}" for loss in names if loss in _RANGED and "labels" not in configured)


class TrialFile:
    """Records of finished trials by key: a file of JSON lines, appended by one process.

    Parameters
    ----------
    path : Path
        Made with the first record.

    Raises
    ------
    CheckError
        If a line other than an incomplete last one is no record.

    Examples
    --------
    >>> import tempfile
    >>> from experiments.fit_table.trials import TrialFile
    >>> path = Path(tempfile.mkdtemp()) / "trials.jsonl"
    >>> TrialFile(path).add({"key": "a", "val": 310.5})
    >>> TrialFile(path).records
    {'a': {'key': 'a', 'val': 310.5}}
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        if not path.exists():
            return
        # A process that was killed while it wrote leaves an incomplete last line; that trial runs again.
        complete = path.read_bytes().rpartition(b"\n")[0]
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                record = json.loads(line)
                self.records[record["key"]] = record
            except (ValueError, TypeError, KeyError) as error:
                todo = "Delete the line; its trial runs again."
                raise CheckError(f"line {number} is no record of a trial", where=str(path), todo=todo) from error
        if path.stat().st_size > len(complete) + bool(complete):
            os.truncate(path, len(complete) + bool(complete))

    def add(self, record: Record) -> None:
        """Append a record and wait until it is on disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.records[record["key"]] = record


def run_trials(
    trials: Sequence[Trial],
    records: TrialFile,
    workers: int,
    figures: Callable[[Mapping[str, Any]], dict[str, float | None]],
    notify: Callable[[Record], None] = lambda _: None,
) -> None:
    """Run trials on the CPU, `workers` at a time, each on one thread, so that figures do not depend on their number.

    Trials with a record are skipped, interrupted ones resume. All trials finish before the error of one is raised.

    Parameters
    ----------
    trials : sequence of Trial
    records : TrialFile
        Receives the record of each trial.
    workers : int
    figures : callable
        Returns the figures of `Evaluation.to_json`.
    notify : callable
        Called with each new record.
    """
    todo = [trial for trial in trials if trial.key not in records.records]
    errors: list[BaseException] = []
    # Spawned, since a forked process that has used torch's threads may never answer.
    context = get_context("spawn")
    with ProcessPoolExecutor(max(1, workers), mp_context=context, initializer=_prepare_worker) as pool:
        with blocked_interrupts():  # a starting interpreter answers Ctrl-C with a traceback
            started = {pool.submit(run_trial, trial): trial for trial in todo}
        try:
            for future in as_completed(started):
                error = future.exception()
                if error is not None:
                    errors.append(error)
                    continue
                trial, result = started[future], future.result()
                evaluation = result.pop("evaluation")
                extra = {} if evaluation is None else {"figures": figures(evaluation)}
                records.add({"key": trial.key, **trial.facts, **result, **extra})
                # A trial that chose a setting leaves nothing else behind.
                if trial.held is None:
                    shutil.rmtree(trial.train.out, ignore_errors=True)
                notify(records.records[trial.key])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if errors:
        raise errors[0]


def _prepare_worker() -> None:
    end_on_interrupt()
    end_with_parent()


def run_trial(trial: Trial) -> dict[str, Any]:
    """Train and evaluate.

    Returns
    -------
    dict of str to Any
        `val` is the best RSUM on the validation split, None if the loss was not finite and for an average; `steps` and
        `seconds` of the trainings; `evaluation` is None without one.
    """
    import torch

    from relabel_train.evaluate import evaluate
    from relabel_train.fit import fit

    # Sums of several threads have other last bits: figures must not depend on the number of workers.
    torch.set_num_threads(1)
    try:
        # Finished runs, as those of an average are, only return their state.
        states = [fit(options, "cpu") for options in (trial.train, *trial.averaged)]
    except DivergenceError:
        if trial.held is not None:
            raise
        return {"val": None, "steps": 0, "seconds": 0.0, "evaluation": None}
    evaluation = None if trial.held is None else evaluate(trial.held, "cpu").to_json()
    return {
        "val": None if trial.averaged else round(states[0].best, 4),
        "steps": sum(state.step for state in states),
        "seconds": round(sum(state.seconds for state in states), 3),
        "evaluation": evaluation,
    }
