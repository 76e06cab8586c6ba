"""Qrels and runs in TREC's format, from tables of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.types import Of
from relabel.export.base import Export, ExportInputs
from relabel.export.params import ExportTrecParams
from relabel.store.manifest import combine_chunks
from relabel.store.workdir import Work, part_ranges

_COLUMNS = ("query", "caption", "rank", "score")
_STEP = 10_000  # queries in memory
_SAMPLE = 10_000_000  # scores from which quantiles are computed


class TrecExport(Export[ExportTrecParams]):
    """Two files per split: `SPLIT.run` with the neighbours of every query, `SPLIT.qrels` with their grades.

    A run has a line ``QUERY Q0 CAPTION RANK SCORE LABEL`` per neighbour, best first. Qrels have a line
    ``QUERY 0 CAPTION GRADE`` per neighbour whose score reaches the first cut point.
    """

    @override
    def neighbours_of(self) -> Of:
        return self.params.of

    @override
    def check(self, inputs: ExportInputs) -> None:
        if inputs.neighbours is None:
            todo = f"Run `relabel neighbours --label {inputs.label} --within {inputs.split} --of {self.params.of}`."
            raise MissingError(f"no neighbours of {self.params.of} by {inputs.label}", todo=todo)
        if list(self.params.levels) != sorted(set(self.params.levels)):
            raise UsageError("cut points must rise", where="export.trec.levels")
        for name in ("caption_id", "image_id"):
            ids = inputs.corpus.table[name].slice(inputs.rows.start, len(inputs.rows))
            spaced = pc.match_substring_regex(ids, r"\s")
            if pc.any(spaced).as_py():
                example = ids.filter(spaced)[0].as_py()
                raise CheckError("an id with a space cannot stand in TREC's format", where=repr(example))

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        levels = self.params.levels or self._quantiles(inputs)

        def run(lists: pa.Table) -> Iterator[str]:
            for query, caption, rank, score in zip(*(lists[name].to_pylist() for name in _COLUMNS), strict=True):
                # Nine digits give every float32 back.
                yield f"{query} Q0 {caption} {rank} {score:.9g} {inputs.label}\n"

        def qrels(lists: pa.Table) -> Iterator[str]:
            grades = grade(lists["score"].to_numpy(), levels).tolist()
            for query, caption, value in zip(
                lists["query"].to_pylist(), lists["caption"].to_pylist(), grades, strict=True
            ):
                if value:
                    yield f"{query} 0 {caption} {value}\n"

        for split, rows in inputs.splits.items():
            for ending, lines in (("run", run), ("qrels", qrels)):
                work.file(f"{split}.{ending}", partial(self._write_lines, inputs, rows, lines))
        work.facts |= {"levels": list(levels), "of": self.params.of}

    def _quantiles(self, inputs: ExportInputs) -> tuple[float, ...]:
        """Return cut points as quantiles of the scores of the neighbours to write."""
        assert inputs.neighbours is not None
        queries = self._queries(inputs, inputs.rows)
        # Every s-th group of queries, if there are more scores than the sample holds.
        stride = -(-len(queries) * max(1, int(inputs.neighbours.manifest.facts["k"])) // _SAMPLE)
        groups = part_ranges(queries, _STEP)[::stride]
        values = np.concatenate([self._lists(inputs, group)["score"].to_numpy() for group in groups])
        return tuple(sorted({float(np.float32(cut)) for cut in np.quantile(values, self.params.quantiles)}))

    def _queries(self, inputs: ExportInputs, rows: range) -> range:
        """Return the numbers of the queries of some captions: their rows, or the numbers of their images."""
        return rows if self.params.of == "captions" else inputs.corpus.images_of(rows)

    def _lists(self, inputs: ExportInputs, queries: range) -> pa.Table:
        """Return one row per neighbour of some queries that has a score, with `_COLUMNS`."""
        assert inputs.neighbours is not None
        first = self._queries(inputs, range(*inputs.neighbours.manifest.facts["rows"])).start
        table = inputs.neighbours.read_rows(queries, ["neighbours", "scores"], first)
        lists = combine_chunks(table["neighbours"])
        sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        corpus, numbers = inputs.corpus, np.repeat(np.arange(queries.start, queries.stop), sizes)
        by_image = self.params.of == "images"
        query = corpus.table["image_id" if by_image else "caption_id"]
        columns = (
            query.take(pa.array(corpus.indptr[numbers] if by_image else numbers)),
            corpus.table["caption_id"].take(lists.flatten()),
            np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1,
            pc.list_flatten(table["scores"].combine_chunks()),
        )
        ranked = pa.table(dict(zip(_COLUMNS, columns, strict=True)))
        return ranked.filter(pc.is_finite(ranked["score"]))

    def _write_lines(
        self, inputs: ExportInputs, rows: range, lines: Callable[[pa.Table], Iterator[str]], path: Path
    ) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for group in part_ranges(self._queries(inputs, rows), _STEP):
                file.writelines(lines(self._lists(inputs, group)))


def grade(scores: NDArray[np.float32], levels: tuple[float, ...]) -> NDArray[np.int64]:
    """Return the number of cut points that each score reaches."""
    return np.searchsorted(np.array(levels), scores, side="right")
