"""Qrels and runs in TREC format, from neighbour tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.export.base import Export, ExportInputs
from relabel.export.neighbours import matrix
from relabel.export.params import ExportTrecParams
from relabel.store.workdir import Work, part_ranges

_STEP = 10_000  # queries in memory
_SAMPLE = 10_000_000  # maximum number of scores for computing quantiles
_QUANTILES = (0.5, 0.9, 0.99)  # default cut points: a few grades, of which the best is rare


class TrecExport(Export[ExportTrecParams]):
    """Two files per split: `SPLIT.run` with the neighbours of every query, `SPLIT.qrels` with their grades.

    A run has a line ``QUERY Q0 CAPTION RANK SCORE LABEL`` per neighbour, best first. Qrels have a line
    ``QUERY 0 CAPTION GRADE`` per neighbour with a score of at least the first cut point.
    """

    def __init__(self, params: ExportTrecParams) -> None:
        super().__init__(params)
        self.neighbours_of = params.queries

    @override
    def check(self, inputs: ExportInputs) -> None:
        if inputs.neighbours is None:
            queries, split = self.params.queries, inputs.split
            hint = f"Run `relabel neighbours --label {inputs.label} --candidates {split} --queries {queries}`."
            raise MissingError(f"{inputs.label} has no neighbour table for {queries}", hint=hint)
        levels, (low, high) = self.params.levels, inputs.source.spec.bounds
        if list(levels) != sorted({level for level in levels if low < level <= high}):
            problem = f"cut points must increase, be above {low:g}, the minimum of {inputs.label}, and at most {high:g}"
            raise UsageError(problem, where="export.trec.levels")
        for name in ("caption_id", "image_id"):
            ids = inputs.corpus.table[name].slice(inputs.rows.start, len(inputs.rows))
            spaced = pc.match_substring_regex(ids, r"\s")
            if pc.any(spaced).as_py():
                example = ids.filter(spaced)[0].as_py()
                raise CheckError("an id with a space is not valid in TREC format", where=repr(example))

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        levels = self.params.levels or self._quantiles(inputs)
        for split, rows in inputs.splits.items():
            queries = self._queries(inputs, rows)
            work.file(f"{split}.run", partial(self._write, inputs, queries, None))
            work.file(f"{split}.qrels", partial(self._write, inputs, queries, levels))
        work.metadata |= {"levels": list(levels), "queries": self.params.queries}

    def _quantiles(self, inputs: ExportInputs) -> tuple[float, ...]:
        """Return cut points: quantiles of the scores above the minimum, over the neighbours to write."""
        assert inputs.neighbours is not None
        queries = self._queries(inputs, inputs.rows)
        # Take every s-th group of queries if there are more than _SAMPLE scores.
        stride = -(-len(queries) * max(1, int(inputs.neighbours.manifest.metadata["k"])) // _SAMPLE)
        groups = part_ranges(queries, _STEP)[::stride]
        values = np.concatenate([self._ranked(inputs, group)["score"].to_numpy() for group in groups])
        # Many scores of a sparse label are the minimum. All captions reach it, so it is not a grade of relevance.
        values = values[values > (low := inputs.source.spec.bounds[0])]
        if not len(values):
            raise CheckError(f"no neighbour has a relevance above {low:g}, the minimum of {inputs.label}")
        return tuple(sorted({float(np.float32(cut)) for cut in np.quantile(values, _QUANTILES)}))

    def _queries(self, inputs: ExportInputs, rows: range) -> range:
        """Return the queries for a range of captions: their rows, or the numbers of their images."""
        return rows if self.params.queries == "captions" else inputs.corpus.images_of(rows)

    def _ranked(self, inputs: ExportInputs, queries: range) -> pa.Table:
        """Return query, caption, rank and score of the neighbours of a range of queries, without NaN scores."""
        assert inputs.neighbours is not None
        table, corpus = inputs.neighbours.read(queries, ["neighbours", "scores"]), inputs.corpus
        near, scores = matrix(table, "neighbours"), matrix(table, "scores")
        by_image, numbers = self.params.queries == "images", np.repeat(table["row"].to_numpy(), near.shape[1])
        rows = corpus.indptr[numbers] if by_image else numbers
        columns = {
            "query": corpus.table["image_id" if by_image else "caption_id"].take(pa.array(rows)),
            "caption": corpus.table["caption_id"].take(pa.array(near.reshape(-1))),
            "rank": np.tile(np.arange(near.shape[1]) + 1, len(near)),
            "score": scores.reshape(-1),
        }
        return pa.table(columns).filter(pc.is_finite(pa.array(columns["score"])))

    def _write(self, inputs: ExportInputs, queries: range, levels: Sequence[float] | None, path: Path) -> None:
        """Write qrels, or a run if `levels` is None."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for group in part_ranges(queries, _STEP):
                ranked = self._ranked(inputs, group)
                query, caption, rank, score = (column.to_pylist() for column in ranked.columns)
                if levels is None:
                    lines = zip(query, caption, rank, score, strict=True)
                    # Nine digits preserve every float32.
                    file.writelines(f"{q} Q0 {c} {r} {s:.9g} {inputs.label}\n" for q, c, r, s in lines)
                else:
                    grades = zip(query, caption, grade(ranked["score"].to_numpy(), levels).tolist(), strict=True)
                    file.writelines(f"{q} 0 {c} {value}\n" for q, c, value in grades if value)


def grade(scores: NDArray[np.float32], levels: Sequence[float]) -> NDArray[np.int64]:
    """Return the grade of each score: the number of cut points at or below it."""
    return np.searchsorted(np.array(levels), scores, side="right")
