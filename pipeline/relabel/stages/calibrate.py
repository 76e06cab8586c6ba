"""calibrate: curves from relevance to human judgement, fitted to CxC's val pairs or shipped for default parameters."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError, UsageError
from relabel.judge import calibration as fitting
from relabel.judge.calibration import Calibration, Reliability
from relabel.judge.cxc import ScoredPairs
from relabel.judge.cxc_figures import PairScores
from relabel.judge.report import BASELINE
from relabel.sources.base import SourceParams
from relabel.stages.ingest import namespace
from relabel.stages.job import Job, PendingJob, label_values
from relabel.stages.judged import judgement, open_scores
from relabel.stages.session import Session
from relabel.store.artefact import Recipe
from relabel.store.manifest import MANIFEST
from relabel.store.workdir import Work
from relabel_train.scoring.calibration import CalibrationCurve

SHIPPED = Path(fitting.__file__).with_name("calibrations.json")
"""Curves of labels with default parameters. The entry `origin` says how they were made."""


def calibration(session: Session, label: str) -> Job:
    """Prepare to calibrate a label with its scores of CxC's val pairs."""
    session = session.judged_on("val")
    params = session.config.judge
    config = {"resamples": params.resamples, "seed": params.seed}

    def fill(work: Work) -> None:
        fitted = fitting.calibrate(open_scores(session, label).tasks["sits"], params.resamples, params.seed)
        if fitted is None:
            work.warn(f"CxC has fewer than {fitting.GROUP} pairs of two images of these captions: no curve")
        fitting.write_calibration(fitted, work)

    recipe = Recipe("calibration", label, lambda: config, {"judgement": judgement(session, label)}, fill)
    command = session.command("correlate", label=label, split="val")
    values = label_values(session.config, label) | {f"judge.{name}": value for name, value in config.items()}
    return Job(session, session.folder("calibrations", label), recipe, command, values)


def calibration_jobs(session: Session, labels: Iterable[str], against: Collection[str]) -> Iterator[PendingJob]:
    """Yield the jobs that calibrate labels, if CxC's val pairs are judged."""
    params = session.config.judge
    if "cxc" in against and params.split == "val" and "sits" in params.tasks:
        for label in (name for name in labels if session.config.params(name).source != BASELINE):
            out, prepare = session.folder("calibrations", label), partial(calibration, session, label)
            yield PendingJob(label, "correlate", label, out, prepare)


def find_calibration(session: Session, label: str) -> Calibration | None:
    """Return the calibration fitted to a label's scores if it exists, otherwise the one shipped for its parameters.

    None if there is neither.
    """
    if namespace(session) == "coco" and (session.folder("calibrations", label) / MANIFEST).exists():
        job = calibration(session, label)
        job.open()
        if found := fitting.read_calibration(job.out):
            return found
    return shipped(session.config.params(label))


def current_calibration(session: Session, label: str, user: str) -> Calibration | None:
    """Return `find_calibration`, or None if the calibration on disk is not current. A note names `user`."""
    try:
        return find_calibration(session, label)
    except CheckError as error:
        session.note_once(f"{user} {label} has no calibration: {error}")
        return None


def need_calibration(session: Session, label: str) -> Calibration:
    """Return the calibration of a label; UsageError if there is none."""
    if found := find_calibration(session, label):
        return found
    hint = f"On COCO, `relabel correlate --cxc --split val --label {label}` makes one."
    raise UsageError(f"{label} has no calibration that maps its relevance to human scores", hint=hint)


def check_curves(session: Session, labels: Iterable[str], scores: Iterable[PairScores] = ()) -> dict[str, Reliability]:
    """Compare the curves of labels with the pairs of the judged split. Labels without a curve are left out.

    `scores`: scores computed by other programs. Scores of val are compared with the curve fitted to them.
    """
    curves = dict[str, tuple[CalibrationCurve, ScoredPairs]]()
    for label in labels if "sits" in session.config.judge.tasks else ():
        if found := current_calibration(session, label, "figures"):
            curves[label] = found.curve, open_scores(session, label).tasks["sits"]
    for scored in scores:
        pairs = scored.tasks.get("sits") if scored.split == "val" else None
        if pairs and (found := fitting.calibrate(pairs, resamples=0)):
            curves[scored.label] = found.curve, pairs
    checked = ((label, fitting.reliability(*curve)) for label, curve in curves.items())
    return {label: found for label, found in checked if found}


def shipped(params: SourceParams) -> Calibration | None:
    """Return the shipped calibration of a source with these parameters."""
    for entry in _curves():
        given = entry["params"]
        if given["source"] == params.source and type(params).model_validate(given) == params:
            return fitting.calibration_of(entry["calibration"])
    return None


@cache
def _curves() -> list[dict[str, Any]]:
    return list(json.loads(SHIPPED.read_bytes())["labels"].values())
