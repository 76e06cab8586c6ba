"""Evaluation sets of texts: scores of their pairs by labels, and comparisons with the judgements, as artefacts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from relabel.core.errors import UsageError, choices
from relabel.core.numeric.statistics import Vector
from relabel.datasets.evaluation_file import JUDGEMENT_FILES, evaluation_file
from relabel.datasets.evaluation_sets import EvaluationSet, Judgements, evaluation_set, set_names
from relabel.judge.figures import set_figures
from relabel.judge.report import JudgedLabel, LabelFigures
from relabel.judge.scores import read_scores, score_judgements, write_scores
from relabel.sources.base import Source
from relabel.sources.texts import fingerprint_texts
from relabel.stages.corpus import open_corpus
from relabel.stages.encode import model_jobs
from relabel.stages.job import Job, PendingJob, Values
from relabel.stages.judged import ENCODED, judge_job
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST
from relabel.store.workdir import Work


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """A label on a set of texts.

    `reason`: reason why the label cannot score new texts, or None if it can.
    `scores`, `figures`: jobs that score the pairs, and that compare the scores with the judgements.
    """

    label: str
    reason: str | None
    scores: Job
    figures: Job


@dataclass(frozen=True, eq=False)
class TextSet:
    """An open set of texts with the labels that are judged on it."""

    judged: EvaluationSet
    judgements: Judgements
    labels: Sequence[ScoredSet] = ()


def judged_names() -> tuple[str, ...]:
    """Return the names of all evaluation sets."""
    return (*ENCODED, *set_names())


def open_set(session: Session, name: str, labels: Iterable[str]) -> TextSet:
    """Open a set of texts, or a file of judgements. Ids in a file are replaced by captions of the project."""
    if name in set_names():
        judged = evaluation_set(name)
    elif Path(name).suffix in JUDGEMENT_FILES:
        # Files of judgements work without a corpus.
        corpus = open_corpus(session) if session.folder("corpus", MANIFEST).exists() else None
        captions = dict(zip(corpus.caption_ids, corpus.texts, strict=True)) if corpus else {}
        judged = evaluation_file(Path(name), session.config.judge.statistic, captions)
    else:
        hint = f"{choices(name, judged_names())} Or pass a file ({', '.join(JUDGEMENT_FILES)})."
        raise UsageError(f"no evaluation set {name!r}", hint=hint)
    texts = TextSet(judged, judged.open(session.runtime.data))
    return replace(texts, labels=[_scored_set(session, texts, label) for label in labels])


def set_jobs(session: Session, sets: Iterable[TextSet]) -> Iterator[PendingJob]:
    """Yield the jobs of models, scores and figures of labels on sets of texts."""
    for texts in sets:
        for scored in (scored for scored in texts.labels if scored.reason is None):
            key = f"{scored.label} on {texts.judged.name}"
            for part in session.config.with_parts(scored.label):
                yield from model_jobs(session, key, part)
            for job in (scored.scores, scored.figures):
                yield PendingJob(key, "correlate", scored.label, job.out, partial(replace, job))


def compare_scores(session: Session, texts: TextSet, label: JudgedLabel, scores: Vector) -> LabelFigures:
    """Compare scores of the pairs of a set with the judgements."""
    params, threads = session.config.judge, session.runtime.threads
    return LabelFigures(label, set_figures(texts.judged, texts.judgements, scores, params, threads))


def _scored_set(session: Session, texts: TextSet, label: str) -> ScoredSet:
    sources = session.config.with_parts(label)
    reason = next(filter(None, (source.supports("query") for source in sources.values())), None)
    scores = _scores(session, texts, label, sources)
    return ScoredSet(label, reason, scores, _figures(session, texts, label, scores))


def _scores(session: Session, texts: TextSet, label: str, sources: Mapping[str, Source[Any]]) -> Job:
    """Prepare to score the pairs of a set with a label. `sources`: sources of the label and its parts."""
    pairs, source, runtime = texts.judgements, sources[label], session.runtime

    @cache
    def config() -> Values:
        params = fingerprint_texts(pairs.references, pairs.candidates, sources, runtime)
        return {"pooling": source.params.pooling, "both_orders": pairs.both_orders, "sources": params}

    def fill(work: Work) -> None:
        encodings = _folder(session, texts) / "encodings"
        write_scores(score_judgements(pairs, source, runtime, sources, encodings, label), work)

    return _job(session, texts, "scores", Recipe("scores", label, config, {"texts": pairs.digest_of_texts}, fill))


def _figures(session: Session, texts: TextSet, label: str, scores: Job) -> Job:
    """Prepare to compare a label's scores of a set with the judgements."""
    judged, params = texts.judged, session.config.judge

    def fill(work: Work) -> None:
        scores.open()
        about = JudgedLabel(label=label, params=session.config.source(label).params.model_dump(mode="json"))
        compare_scores(session, texts, about, read_scores(scores.out)).write(work)

    config: Values = {"resamples": params.resamples, "seed": params.seed}
    config |= {"statistics": judged.statistics, "group": judged.group, "ties": judged.ties}
    inputs: Inputs = {"scores": scores, "judgements": texts.judgements.digest_of_judgements}
    recipe = Recipe("figures", label, lambda: config, inputs, fill)
    return _job(session, texts, "figures", recipe, ("resamples", "seed"))


def _job(session: Session, texts: TextSet, folder: str, recipe: Recipe, names: tuple[str, ...] = ()) -> Job:
    label = recipe.name
    command = session.command("correlate", on=texts.judged.name, label=label)
    return judge_job(session, _folder(session, texts) / folder / label, recipe, command, names)


def _folder(session: Session, texts: TextSet) -> Path:
    """Return the folder of a set, for the scores, figures and encodings of all labels."""
    # A set from a file is named by the file, so the name may hold any character.
    name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", texts.judged.name).lstrip("_.+-")[:80] or "file"
    return session.folder("judged", name)
