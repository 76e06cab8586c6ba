"""Rows and seeds of the table as runs of the trainer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relabel.errors import UsageError
from relabel.fitting.params import FitTableParams, Row
from relabel.sources.base import Source
from relabel_train.evaluate import EvalOptions
from relabel_train.training.options import FitOptions
from relabel_train.training.trial import Trial

_CONFIGURED = {"smooth_ndcg": "labels", "smooth_ndcg_triplet": "labels"}
"""Losses that are told the range of labels, and the parameter that says it."""


@dataclass(frozen=True)
class Places:
    """Where a table's inputs are, and its runs go.

    Attributes
    ----------
    features, captions, runs : Path
    lookups : mapping of label to Path
    eccv : Path or None
    identity : str
        What features, captions and lookups were made of.
    """

    features: Path
    captions: Path
    runs: Path
    lookups: Mapping[str, Path]
    eccv: Path | None
    identity: str


def make_trials(
    params: FitTableParams, places: Places, sources: Mapping[str, type[Source[Any]]]
) -> dict[str, list[Trial]]:
    """List the trials of each row, one a seed.

    Raises
    ------
    UsageError
        If a row names a label that is not among `fit_table.train_labels`.
    """
    return {
        name: [_trial(name, row, seed, params, places, sources) for seed in params.seeds]
        for name, row in params.settled().items()
    }


def _trial(
    name: str, row: Row, seed: int, params: FitTableParams, places: Places, sources: Mapping[str, type[Source[Any]]]
) -> Trial:
    label = row.label or params.train_labels[0]
    if label not in params.train_labels:
        raise UsageError(
            f"row {name} is trained with {label}", todo=f"Add it to fit_table.train_labels: {params.train_labels}."
        )
    low, top = sources[label].bounds
    told = [f"{one}.{_CONFIGURED[one]}={'cosine' if low < 0 else 'unit'}" for one in row.loss if one in _CONFIGURED]
    set_already = {setting.partition("=")[0].rpartition(".")[2] for setting in row.loss_set}
    told = [one for one in told if one.partition("=")[0].rpartition(".")[2] not in set_already]
    given: dict[str, Any] = {
        "model": params.model,
        "loss": row.loss,
        "loss_set": (*row.loss_set, *told),
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
    asked = {"label": label, "judge": params.judge, "ncs": params.ncs, "graded": params.graded}
    digest = hashlib.sha256(json.dumps([given, asked, places.identity], sort_keys=True).encode()).hexdigest()
    out = places.runs / f"{name.replace(', ', '-').replace(' ', '_')}-{seed}-{digest[:12]}"
    train = FitOptions(data=places.features, captions=places.captions, out=out, labels=places.lookups[label], **given)
    judges = tuple(places.lookups[one] for one in dict.fromkeys((params.judge, params.ncs)))
    held = EvalOptions(
        run=out,
        data=places.features,
        captions=places.captions,
        labels=judges,
        graded=params.graded,
        eccv=places.eccv,
    )
    return Trial(f"{name}, seed {seed}", train, held)
