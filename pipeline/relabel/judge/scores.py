"""Scores of the pairs of an evaluation set, from a label, a function of texts, or a file.

With a function or a file, the tables can compare any model with labels.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.numeric.statistics import Vector
from relabel.core.runtime import Progress, Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.datasets.cxc import TASKS, JudgedSplit, human_scores
from relabel.datasets.evaluation_file import number_of, read_records, texts_of
from relabel.datasets.evaluation_sets import EvaluationSet, Judgements
from relabel.judge import JudgeParams
from relabel.judge.cxc import ScoredPairs, score_at_once
from relabel.judge.cxc_figures import PairScores, pair_images
from relabel.judge.report import EXTERNAL, JudgedLabel
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.sources.texts import TextScores, score_texts
from relabel.store.manifest import read_columns
from relabel.store.workdir import Work

_FILE = "scores.parquet"
ScoreFunction = Callable[[list[list[str]], list[str]], Any]
"""Function of P reference sets and P candidates that returns P scores."""


def score_judgements(
    judgements: Judgements,
    source: Source[Any],
    runtime: Runtime,
    parts: Mapping[str, Source[Any]] = MappingProxyType({}),
    folder: Path | None = None,
    label: str = "label",
) -> TextScores:
    """Score the pairs of a set with a source.

    `parts`: sources of the parts and gates of `source`, by label, including nested ones. `folder`: folder in which
    encodings are kept; by default they are temporary. `label`: name of the encoding of `source`. Returns TextScores.
    The score of a pair is NaN if a text could not be encoded.
    """
    # Score both orders in one call, because document frequencies must count each distinct text once.
    references, candidates = ([*chain(*side)] for side in zip(*_orders(judgements), strict=True))
    scored = score_texts(source, references, candidates, runtime, parts, folder=folder, label=label)
    return replace(scored, scores=scored.scores.reshape(-1, len(judgements.candidates)).mean(axis=0))


def _orders(judgements: Judgements) -> list[tuple[list[list[str]], list[str]]]:
    """Return the references and candidates of all pairs, and again in the other order if both orders count."""
    references, candidates = judgements.references, judgements.candidates
    # If both orders count, each reference set is a single text.
    swapped = [([[text] for text in candidates], [texts[0] for texts in references])]
    return [(references, candidates), *(swapped if judgements.both_orders else [])]


def write_scores(scored: TextScores, work: Work) -> None:
    """Write the scores of a label as an artefact."""
    work.table(_FILE, lambda: pa.table({"score": scored.scores}))
    failed = np.flatnonzero(np.isnan(scored.scores))
    if len(failed):
        digest = hashlib.sha256(failed.tobytes()).hexdigest()
        work.metadata["failed"] = {"rows": len(failed), "sha256": digest, "first": []}
    # The time differs between runs, so it must not change the identity of the scores.
    work.provenance["cost"] = {"captions": scored.captions, "seconds": scored.seconds, "bytes": scored.bytes}


def read_scores(folder: Path) -> Vector:
    """Read the scores of an artefact, (P,) float64."""
    return np.asarray(read_columns(folder / _FILE)["score"].to_numpy(), np.float64)


@dataclass(frozen=True, eq=False)
class TextFunction:
    """A function of texts that is judged like a label, with its name.

    `pooling`: pooling over the captions of the second image of a pair of CxC's SIS (see `Relevance.set_pairs`).
    """

    name: str
    function: ScoreFunction
    pooling: Pooling = "set"

    def __call__(self, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Vector:
        """Score P pairs; return (P,) float64. NaN means no score. The first two pairs are tested separately first."""
        sets, texts = [list(one) for one in references], list(candidates)
        self._checked(sets[:2], texts[:2], few=True)
        return self._checked(sets, texts)

    def _checked(self, references: list[list[str]], candidates: list[str], few: bool = False) -> Vector:
        try:
            scores = np.asarray(self.function(references, candidates), np.float64)
            # An array of shape (P, 1) would later broadcast to (P, P).
            if scores.shape != (len(candidates),):
                raise ValueError(f"shape {scores.shape} for {len(candidates):,} pairs")
            if np.isinf(scores).any() or (few and np.isnan(scores).any()):
                raise ValueError(f"{scores[~np.isfinite(scores)][0]}")
        except (TypeError, ValueError) as error:
            problem = f"function {self.name} did not return one finite number per pair: {error}"
            raise CheckError(problem, hint="Return one number per pair of a reference set and a candidate.") from error
        return scores


@dataclass(frozen=True, eq=False, repr=False)
class FunctionRelevance(Relevance):
    """Relevance of all captions of a corpus, computed by a function of texts."""

    corpus: Corpus
    rows: range
    pooling: Pooling
    function: TextFunction

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        texts = self.corpus.texts
        sets = [[texts[row] for row in references[m].tolist()] for m in range(len(references))]
        return self.function(sets, [texts[row] for row in captions.tolist()])

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        return self.function([[text]] * len(captions), [self.corpus.texts[row] for row in captions.tolist()])


def score_cxc_with_function(
    corpus: Corpus, function: TextFunction, params: JudgeParams, progress: Progress
) -> PairScores:
    """Score the pairs of CxC with a function of texts."""
    relevance = FunctionRelevance(corpus, range(len(corpus)), function.pooling, function)
    tasks = score_at_once(corpus, relevance, params.split, progress, leave_one_out=params.leave_one_out)
    return PairScores(external_label(function.name), params.split, tasks, params.leave_one_out)


def score_with_function(judgements: Judgements, function: TextFunction) -> Vector:
    """Score the pairs of a set with a function of texts. If both orders count, return their mean."""
    return np.asarray(np.mean([function(*order) for order in _orders(judgements)], axis=0))


Key = tuple[str, ...]


def external_label(name: str) -> JudgedLabel:
    """Describe a label with scores from a file or a function."""
    return JudgedLabel(label=name, params={"source": EXTERNAL, "pooling": "set"})


def read_cxc_scores(path: Path, split: JudgedSplit, allow_missing: bool = False) -> PairScores:
    """Read scores of CxC's judged pairs by the ids of their items.

    `path`: JSON Lines, CSV or Parquet with the columns `left` and `right` (ids in the order of CxC's files, such as
    `coco:770337`) and `score`. Other pairs are ignored. A task is reported if the file has any of its pairs.
    `allow_missing`: accept and count pairs of a reported task that do not have a score. Returns PairScores of a label
    that has the name of the file.
    """

    def key_of(record: Mapping[str, Any], where: str) -> Key:
        key = record.get("left"), record.get("right")
        if not all(isinstance(name, str) for name in key):
            hint = "Write ids such as coco:770337."
            raise CheckError("expected `left` and `right`, the ids of a pair", where=where, hint=hint)
        return tuple(map(str, key))

    scores, tasks = _read(path, key_of), {}
    for task in TASKS:
        human = human_scores(task, split)
        keys = list(zip(human.left, human.right, strict=True))
        if scores.keys().isdisjoint(keys):
            continue
        names, values = [" ".join(key) for key in keys], [scores.get(key) for key in keys]
        relevance = _complete(path, f"CxC's {task} pairs of {split}", names, values, allow_missing)
        missing = ["not in the file" if value is None else None for value in values]
        # Use the same clusters as for labels.
        tasks[task] = ScoredPairs(human, relevance, missing, pair_images(human).astype(np.int32))
    if not tasks:
        problem = f"no judged pair of CxC's {split} split"
        raise CheckError(problem, where=str(path), hint="Write ids of captions and images such as `coco:770337`.")
    return PairScores(external_label(path.stem), split, tasks)


def read_pair_scores(path: Path, judged: EvaluationSet, judgements: Judgements, allow_missing: bool = False) -> Vector:
    """Read scores of the pairs of an evaluation set of texts.

    `path`: JSON Lines, CSV or Parquet with a column `score`, and either `id` (see `EvaluationSet.pair_ids`) or the
    texts: `references` (or `reference`) and `candidate`. Other pairs are ignored. If both orders of a pair count, one
    is enough; if the file has both, their mean is used. `allow_missing`: leave out and count judged pairs that do not
    have a score. Returns (P,) float64, with NaN for pairs without a score.
    """

    def key_of(record: Mapping[str, Any], where: str) -> Key:
        # In Parquet and CSV, every record has all columns, and unused ones are empty.
        if (name := record.get("id")) not in (None, ""):
            return (str(name),)
        if "candidate" not in record:
            hint = f"Ids of {judged.name}: {judged.pair_ids}."
            raise CheckError("expected `id`, or `references` and `candidate`", where=where, hint=hint)
        references, candidate = texts_of(record, where)
        return (*references, candidate)

    scores = _read(path, key_of)
    values: list[float | None] = []
    for name, references, candidate in zip(judgements.ids, judgements.references, judgements.candidates, strict=True):
        orders = [(*references, candidate), *([(candidate, *references)] if judgements.both_orders else [])]
        # A pair of two equal texts has one order.
        keys = [(name,)] if (name,) in scores else dict.fromkeys(orders)
        rated = [scores[key] for key in keys if key in scores]
        values.append(sum(rated) / len(rated) if rated else None)
    if all(value is None for value in values):
        problem = f"no pair of {judged.name}"
        raise CheckError(problem, where=str(path), hint=f"Identify pairs by their texts, or by id: {judged.pair_ids}.")
    return _complete(path, f"pairs of {judged.name}", judgements.ids, values, allow_missing)


def _read(path: Path, key_of: Callable[[Mapping[str, Any], str], Key]) -> dict[Key, float]:
    """Read the scores of a file. Returns a score for each key."""
    scores: dict[Key, float] = {}
    for where, record in read_records(path):
        key, score = key_of(record, where), number_of(record, "score", where)
        if key in scores:
            raise CheckError(f"duplicate pair {' '.join(key)}", where=where, hint="Keep one of them.")
        scores[key] = score
    return scores


def _complete(
    path: Path, pairs: str, names: Sequence[str], values: Sequence[float | None], allow_missing: bool
) -> Vector:
    missing = [name for name, value in zip(names, values, strict=True) if value is None]
    # Correlations over different pairs cannot be compared between labels.
    if missing and not allow_missing:
        problem = f"{len(missing):,} of {len(values):,} {pairs} have no score; first: {missing[0]}"
        raise CheckError(problem, where=str(path), hint="Score all pairs, or pass --allow-missing to leave these out.")
    return np.array([math.nan if value is None else value for value in values])
