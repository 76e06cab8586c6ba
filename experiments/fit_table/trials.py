"""Trials of the table: one training and one evaluation per row and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.params import FitTableParams, Row
from relabel.core.errors import UsageError
from relabel.core.layout import check_name
from relabel.sources.base import Source
from relabel_train.training.options import EvalOptions, FitOptions
from relabel_train.training.sweep import Trial

_CONFIGURED = {"smooth_ndcg": "labels", "smooth_ndcg_triplet": "labels"}
"""Losses that need the range of labels, and the parameter that gives it."""


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
