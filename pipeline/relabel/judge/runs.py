"""Scores of a model on a split: a matrix, or a run in TREC's format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular
from relabel.corpus import REFERENCES, Corpus
from relabel.store.manifest import combine_chunks
from relabel_train.files import map_npy
from relabel_train.metrics import open_scores
from relabel_train.metrics.positives import Ints
from relabel_train.metrics.scores import Direction, Scores

_COLUMNS = ("query", "Q0", "candidate", "rank", "score", "tag")
_IDS = ("query", "candidate")
_SIDES: dict[Direction, tuple[str, str]] = {"i2t": ("image", "caption"), "t2i": ("caption", "image")}


@dataclass(frozen=True, eq=False)
class Run:
    """Scores of the images and captions of a split.

    `kept`: (N,) bool; captions of the split that have scores: all, or the first five of each image.
    `scores`: of images and kept captions; -inf for pairs that a run does not list.
    `candidates`: by direction that has scores, the number of candidates of each query.
    """

    kept: NDArray[np.bool_]
    scores: Scores
    candidates: Mapping[Direction, Ints]

    @classmethod
    def complete(cls, scores: Scores, kept: NDArray[np.bool_]) -> Run:
        """Return a run that has the score of every pair."""
        m, n = scores.shape
        return cls(kept, scores, {"i2t": np.full(m, n), "t2i": np.full(n, m)})


def read_run(path: Path, corpus: Corpus, rows: range) -> Run:
    """Read scores of the captions at `rows` and their images.

    `path`: a matrix of images and captions in corpus order (.npy), or the lines `query Q0 candidate rank score tag` of
    one direction. As in papers, captions after the fifth of an image may be left out.
    """
    check_regular(path, "no such file or label")
    image = corpus.image[rows.start : rows.stop]
    first = np.arange(rows.start, rows.stop) - corpus.indptr[image] < REFERENCES
    return (_read_matrix if path.suffix.lower() == ".npy" else _read_lines)(path, corpus, rows, first)


def _read_matrix(path: Path, corpus: Corpus, rows: range, first: NDArray[np.bool_]) -> Run:
    images = len(corpus.images_of(rows))
    try:
        scores = map_npy(path)
    except ValueError as error:
        raise CheckError(str(error), where=str(path)) from error
    shape = getattr(scores, "shape", None)
    if shape not in {(images, len(rows)), (images, int(first.sum()))}:
        problem = f"expected ({images}, {len(rows)}), the images and captions of the split; its shape is {shape}"
        hint = "Rows are images and columns are captions, in the order of the corpus."
        raise UsageError(problem, where=str(path), hint=hint)
    try:
        return Run.complete(open_scores(scores), first if shape[1] < len(rows) else np.full(len(rows), True))
    except ValueError as error:
        raise CheckError(str(error), where=str(path)) from error


def _read_lines(path: Path, corpus: Corpus, rows: range, first: NDArray[np.bool_]) -> Run:
    where, images = str(path), corpus.images_of(rows)
    table, known = _read_table(path), {"caption": corpus.table["caption_id"].slice(rows.start, len(rows))}
    known["image"] = corpus.table["image_id"].take(pa.array(corpus.indptr[images.start : images.stop]))

    def positions(name: str, side: str) -> Ints:
        return _positions(table[name], known[side], corpus.namespace)

    found = {d: [positions(name, side) for name, side in zip(_IDS, _SIDES[d], strict=True)] for d in _SIDES}
    unknown = {direction: sum(int((side < 0).sum()) for side in both) for direction, both in found.items()}
    if not any(unknown.values()):
        raise UsageError("images and captions have the same ids: the direction is not clear", where=where)
    direction = min(unknown, key=unknown.__getitem__)
    for side, name, places in zip(_SIDES[direction], _IDS, found[direction], strict=True):
        if (wrong := np.flatnonzero(places < 0)).size:
            problem = f"{len(wrong):,} of {len(places):,} lines have a {name} outside the {side}s of the split"
            hint = f"First: {table[name][int(wrong[0])]}. Ids look like {known[side][0]}."
            raise CheckError(problem, where=f"{where}: line {wrong[0] + 1}", hint=hint)
    (query, candidate), queries = found[direction], known[_SIDES[direction][0]]
    levels = np.full((len(queries), len(known[_SIDES[direction][1]])), -np.inf, np.float32)
    levels[query, candidate] = _levels(query, np.asarray(table["score"]))
    listed = np.bincount(query, minlength=len(queries))
    first_lines = np.unique(query * levels.shape[1] + candidate, return_index=True)[1]
    if len(first_lines) < len(query):
        line = int(np.setdiff1d(np.arange(len(query)), first_lines)[0])
        names = " and ".join(str(table[name][line]) for name in _IDS)
        raise CheckError(f"{names} have an earlier line", where=f"{where}: line {line + 1}")
    captions = query if direction == "t2i" else candidate
    kept = first if first[captions].all() else np.full(len(rows), True)
    asked = kept if direction == "t2i" else np.full(len(queries), True)
    if (lacking := np.flatnonzero(asked & (listed == 0))).size:
        problem = f"{len(lacking):,} of {asked.sum():,} queries have no candidates; first {queries[int(lacking[0])]}"
        raise CheckError(problem, where=where, hint="A run has lines for every image or every caption of the split.")
    matrix = levels if direction == "i2t" else levels.T
    return Run(kept, Scores.of(matrix if kept.all() else matrix[:, kept]), {direction: listed[asked]})


def _read_table(path: Path) -> pa.Table:
    """Read query, candidate and score of each line."""
    # Programs separate columns by tabs or by several spaces.
    data = re.sub(rb"^[ \t]+|[ \t\r]+$", b"", path.read_bytes(), flags=re.MULTILINE)
    if not data.strip():
        raise CheckError("the file has no lines", where=str(path))
    data = re.sub(rb"[ \t]+", b" ", data)
    read, parse = csv.ReadOptions(column_names=_COLUMNS), csv.ParseOptions(delimiter=" ", quote_char=False)
    types = {"query": pa.string(), "candidate": pa.string(), "score": pa.float64()}
    convert = csv.ConvertOptions(column_types=types, include_columns=[*types])
    try:
        table = csv.read_csv(pa.BufferReader(data), read, parse, convert)
    except pa.ArrowInvalid as error:
        hint = "Lines are `query Q0 candidate rank score tag`."
        raise CheckError(f"not a run in TREC's format ({error})", where=str(path), hint=hint) from error
    # Arrow reads `nan` as null.
    if (wrong := np.flatnonzero(~np.isfinite(np.asarray(table["score"].fill_null(np.nan))))).size:
        raise CheckError("a score is not a finite number", where=f"{path}: line {wrong[0] + 1}")
    return table


def _positions(names: pa.ChunkedArray, known: pa.ChunkedArray, namespace: str) -> Ints:
    """Return the position of each id, with or without the prefix of the dataset; -1 for an unknown one."""
    names, prefix = combine_chunks(names), f"{namespace}:"
    full = pc.if_else(pc.starts_with(names, prefix), names, pc.binary_join_element_wise(prefix, names, ""))
    return np.asarray(pc.fill_null(pc.index_in(full, value_set=combine_chunks(known)), -1), np.int64)


def _levels(query: Ints, scores: NDArray[np.float64]) -> Ints:
    """Return numbers that order the candidates of each query as their scores do; equal scores have equal numbers.

    They are exact in float32, which scores may not be.
    """
    order = np.lexsort((scores, query))
    new_query, new_score = (np.diff(values[order], prepend=np.nan) != 0 for values in (query.astype(float), scores))
    level = np.cumsum(new_query | new_score)
    start = np.maximum.accumulate(np.where(new_query, level, 0))
    levels = np.empty(len(query), np.int64)
    levels[order] = level - start
    return levels
