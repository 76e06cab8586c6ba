"""Scores of the pairs of a judged set, by a label or by a function of texts.

The scores of a label are an artefact beside the encodings they were computed from, so that neither is computed twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import CheckError
from relabel.core.numeric.statistics import Vector
from relabel.core.runtime import Runtime
from relabel.datasets.judged import Judgements
from relabel.sources.base import Source
from relabel.sources.texts import TextCorpus, TextScores, score_both_orders, score_texts
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel.store.workdir import Work

ENCODINGS, SCORES = "encodings", "scores"
"""Folders below that of a judged set, with one folder per label."""
_FILE = "scores.parquet"
_VERSION = 1  # goes up when equal encodings and pairs give other scores
ScoreFunction = Callable[[list[list[str]], list[str]], Any]
"""Takes P reference sets and P candidates, and returns P scores."""


def score_judgements(
    judgements: Judgements,
    source: Source[Any],
    runtime: Runtime,
    parts: Mapping[str, Source[Any]] = MappingProxyType({}),
    folder: Path | None = None,
    label: str = "label",
) -> TextScores:
    """Score the pairs of a set with a source, or read their scores where they exist.

    Parameters
    ----------
    judgements : Judgements
    source : Source
    runtime : Runtime
    parts : mapping of str to Source
        By label, the sources that `source` is made of or gated by, and those of their own parts.
    folder : Path, optional
        Keeps encodings and scores. By default, both are temporary.
    label : str
        Name of the folders of `source`.

    Returns
    -------
    TextScores
        Scores are NaN where a text could not be encoded; these are tried again by the next call.

    Raises
    ------
    UsageError, CheckError, MissingError
        As `relabel.sources.texts.score_texts`.
    """
    if folder is None:
        return _score(judgements, source, runtime, parts, None, label)
    corpus = TextCorpus.of(judgements.references, judgements.candidates).corpus
    # Captions are identified by their texts: PTB tokens follow from these, and are not made only to find old scores.
    semantic = {"version": _VERSION, "pooling": source.params.pooling, "both_orders": judgements.both_orders}
    semantic["sources"] = {
        name: one.fingerprint_params(corpus, range(len(corpus)), runtime) | {"version": one.spec.version}
        for name, one in {label: source, **parts}.items()
    }
    texts = json.dumps([judgements.references, judgements.candidates])
    artefact = ArtefactSpec("scores", label, semantic, {"texts": hashlib.sha256(texts.encode()).hexdigest()})

    def fill(work: Work) -> None:
        # Scores that lack a pair are complete as a file, and are made again.
        work.drop(_FILE)
        scored = _score(judgements, source, runtime, parts, folder / ENCODINGS, label)
        work.table(_FILE, lambda: pa.table({"score": scored.scores}))
        failed = np.flatnonzero(np.isnan(scored.scores))
        if len(failed):
            digest = hashlib.sha256(failed.tobytes()).hexdigest()
            work.facts["failed"] = {"rows": len(failed), "sha256": digest, "first": []}
        # Seconds differ from run to run, so the cost is no part of the identity of the scores.
        work.runtime["cost"] = {"captions": scored.captions, "seconds": scored.seconds, "bytes": scored.bytes}
        runtime.progress.note(f"{folder.name}: {label} scored in {scored.seconds:.1f} s")

    out = folder / SCORES / label
    manifest, _ = build(out, artefact, fill, runtime.progress)
    return TextScores(pq.read_table(out / _FILE)["score"].to_numpy(), **manifest.runtime["cost"])


def _score(
    judgements: Judgements,
    source: Source[Any],
    runtime: Runtime,
    parts: Mapping[str, Source[Any]],
    folder: Path | None,
    label: str,
) -> TextScores:
    if not judgements.both_orders:
        references, candidates = judgements.references, judgements.candidates
        return score_texts(source, references, candidates, runtime, parts, folder=folder, label=label)
    # Where both orders count, a reference set is one text.
    first = [texts[0] for texts in judgements.references]
    return score_both_orders(source, first, judgements.candidates, runtime, parts, folder=folder, label=label)


def score_with_function(judgements: Judgements, function: ScoreFunction) -> Vector:
    """Score the pairs of a set with a function of texts.

    Parameters
    ----------
    judgements : Judgements
    function : callable
        Called once with all reference sets and candidates; twice, with the two texts exchanged, where both orders
        count.

    Returns
    -------
    (P,) float64

    Raises
    ------
    CheckError
        If the function does not return one number per pair.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.datasets.judged import Judgements
    >>> from relabel.judge.judged_scores import score_with_function
    >>> pairs = Judgements(ids=["0", "1"], references=[["a cat"], ["a dog"]], candidates=["a cat", "cats"],
    ...                    ratings=np.array([[5.0], [1.0]]), groups=["all"] * 2, clusters=["0", "1"])
    >>> score_with_function(pairs, lambda references, candidates: [c in r for r, c in zip(references, candidates)])
    array([1., 0.])
    """
    scores = _call(function, judgements.references, judgements.candidates)
    if judgements.both_orders:
        swapped = _call(function, [[text] for text in judgements.candidates], [r[0] for r in judgements.references])
        scores = (scores + swapped) / 2
    return scores


def _call(function: ScoreFunction, references: list[list[str]], candidates: list[str]) -> Vector:
    try:
        scores = np.asarray(function(references, candidates), np.float64)
    except (TypeError, ValueError) as error:
        raise CheckError(f"the function returned no numbers: {error}", todo="Return one number per pair.") from error
    # A column of shape (P, 1) would later broadcast to P x P.
    if scores.shape != (len(candidates),):
        problem = f"the function returned shape {scores.shape} for {len(candidates):,} pairs"
        raise CheckError(problem, todo="Return one number per pair.")
    return scores
