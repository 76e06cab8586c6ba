"""Trials of the table: trainings with one setting and seed, several in parallel, each recorded once in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.fit_table.search import Setting
from experiments.fit_table.table import figures
from experiments.params import FitTableParams
from relabel.core.runtime import Runtime
from relabel.store.executors import start_worker
from relabel.store.files import write_text
from relabel_train.reference.options import DivergenceError, EvalOptions, FitOptions

_RANGED = ("smooth_ndcg", "smooth_ndcg_triplet", "graded_sigmoid")
"""Losses whose parameter `labels` is the range of labels."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A training run and the evaluation of its model, or several runs and the evaluation of their average.

    Attributes
    ----------
    key : str
        Digest of the parameters that determine the result.
    facts : dict of str to Any
        Model, row, setting and seed, as they are recorded.
    label : str
        Label of the training.
    training, evaluation : dict of str to Any
        Options. The evaluation is None for a trial that chooses a setting: it never reads the test split.
    parts : tuple of Trial
        Trials whose scores are averaged, instead of a training.
    """

    key: str
    facts: dict[str, Any]
    label: str
    training: dict[str, Any]
    evaluation: dict[str, Any] | None
    parts: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """Folders of all trainings; `judges` are the lookups of the labels that judge, `eccv` is None without positives."""

    features: Path
    captions: Path
    runs: Path
    lookups: Mapping[str, Path]
    judges: tuple[Path, ...]
    eccv: Path | None

    def fit_options(self, trial: Trial) -> FitOptions:
        """Return the options of a training."""
        labels, out = self.lookups[trial.label], self.runs / trial.key
        return FitOptions(features=self.features, captions=self.captions, out=out, lookup=labels, **trial.training)


def make_trial(
    params: FitTableParams, model: str, name: str, bounds: tuple[float, float], setting: Setting, seed: int, test: bool
) -> Trial:
    """Return the trial of a model and row; `bounds` are those of its label, `test` evaluates on the test split."""
    row, budget = params.rows_of(model)[name], params.models[model]
    # All rows take as many steps.
    epochs, label = round((budget.epochs or params.epochs) / row.fraction), row.label or params.train_labels[0]
    training: dict[str, Any] = {
        "model": {"name": model, "embed_dim": budget.embed_dim, "word_dim": 64},
        "loss": [_with_range(loss, bounds[0]) for loss in row.at(setting.value)],
        "sampler": row.sampler,
        "triplet_epochs": round(row.triplet_epochs / row.fraction),
        "scale": bounds[1],
    }
    training |= {"epochs": epochs, "decay_at": max(1, epochs * 2 // 3), "patience": params.patience}
    training |= {"batch_size": budget.batch_size or params.batch_size, "lr": setting.lr, "seed": seed}
    more = {"fraction": row.fraction, "evaluate_every": params.evaluate_every}
    # Options that are not used leave the keys of older trainings.
    training |= {name: value for name, value in more.items() if value != FitOptions.model_fields[name].default}
    evaluation = {"images": budget.images, "graded": params.graded} if test else None
    facts = {"model": model, "row": name, "lr": setting.lr, "value": setting.value, "seed": seed}
    key = _digest([label, training, evaluation, list(params.judges) if test else None])
    return Trial(key, facts, label, training, evaluation)


def average_trial(model: str, parts: Sequence[Trial]) -> Trial:
    """Return the trial of the mean of the scores of several models, of one row and seed."""
    facts = {**parts[0].facts, "model": model, "lr": None, "value": None}
    return Trial(_digest([part.key for part in parts]), facts, parts[0].label, {}, parts[0].evaluation, tuple(parts))


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _with_range(loss: dict[str, Any], low: float) -> dict[str, Any]:
    """Return a loss with the range of its labels, if it has such a parameter."""
    return {**loss, "labels": "cosine" if low < 0 else "unit"} if loss["name"] in _RANGED else loss


class TrialFile:
    """Records of finished trials by key: a file of JSON lines, made with the first record.

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
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.records: dict[str, Record] = {record["key"]: record for record in map(json.loads, lines)}

    def add(self, record: Record) -> None:
        """Add a record; the file is written completely or not at all."""
        self.records[record["key"]] = record
        write_text(self.path, "".join(f"{json.dumps(each)}\n" for each in self.records.values()))


def run_trials(
    trials: Iterable[Trial], inputs: Inputs, params: FitTableParams, records: TrialFile, runtime: Runtime
) -> None:
    """Run trials on the CPU, one per thread of the runtime, and record each when it has finished."""
    pending = [trial for trial in trials if trial.key not in records.records]
    # Spawned, since a forked process that has used torch's threads may never answer.
    executor = ProcessPoolExecutor(runtime.threads, get_context("spawn"), _prepare_worker)
    with runtime.progress.bar("trainings", len(pending), "runs") as bar, executor as pool:
        started = {pool.submit(run_trial, trial, inputs, params): trial for trial in pending}
        for future in as_completed(started):
            trial = started[future]
            records.add({"key": trial.key, **trial.facts, **future.result()})
            bar.advance(1)


def _prepare_worker() -> None:
    start_worker()


def run_trial(trial: Trial, inputs: Inputs, params: FitTableParams) -> Record:
    """Train and evaluate.

    Returns
    -------
    dict of str to Any
        `val` is the best RSUM on the validation split, None if the loss was not finite and for an average; `steps` and
        `seconds` of the trainings; `figures` and `images`, the RSUM of each graded test image, if it is evaluated.
    """
    import torch

    from relabel_train.reference.data import open_corpus_features, read_split
    from relabel_train.reference.evaluate import evaluate, score
    from relabel_train.reference.fit import fit
    from relabel_train.reference.runs import load_model

    # Sums of several threads have other last bits: figures must not depend on the number of workers.
    torch.set_num_threads(1)
    runs = [inputs.fit_options(part) for part in trial.parts or (trial,)]
    try:
        # Finished runs, as those of an average are, only return their state.
        states = [fit(options, "cpu") for options in runs]
    except DivergenceError:
        if trial.evaluation is not None:
            raise
        return {"val": None, "steps": 0, "seconds": 0.0}
    seconds, steps = round(sum(state.seconds for state in states), 3), sum(state.step for state in states)
    record = {"val": None if trial.parts else round(states[0].best, 4), "steps": steps, "seconds": seconds}
    if trial.evaluation is None:
        return record
    common: dict[str, Any] = {"features": inputs.features, "captions": inputs.captions, "lookup": inputs.judges}
    common |= {"average": tuple(options.out for options in runs[1:]), **trial.evaluation}
    options = EvalOptions(run=runs[0].out, eccv=None if common["images"] else inputs.eccv, **common)
    features = open_corpus_features(inputs.features, inputs.captions)
    split = read_split(inputs.captions, options.split, features)
    split = split.select(np.arange(min(options.graded or len(split.image_ids), len(split.image_ids))))
    scores = np.sum([score(load_model(run.out), split, features, torch.device("cpu")) for run in runs], axis=0)
    sums = image_sums(scores, split.image)
    result = {"figures": figures(evaluate(options, "cpu").to_json(), params)}
    return record | result | {"images": sums.round(1).tolist()}


def image_sums(scores: NDArray[np.floating[Any]], image: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the part of each of M images in RSUM, (M,): their mean is RSUM, up to equal scores.

    `scores`: (M, N). `image`: image of each caption.
    """
    own = image == np.arange(len(scores))[:, None]
    best = np.where(own, scores, -np.inf).max(axis=1)
    ranks = (scores > best[:, None]).sum(axis=1), (scores > scores[image, np.arange(len(image))]).sum(axis=0)
    hits = [(rank < np.array([[1], [5], [10]])).sum(axis=0) for rank in ranks]
    return np.asarray(100 * (hits[0] + np.bincount(image, hits[1]) * len(scores) / len(image)), np.float64)
