"""Qrels and runs in TREC's format, from tables of neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

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
        for split, rows in inputs.splits.items():
            work.file(f"{split}.run", partial(self._write_run, inputs, rows))
            work.file(f"{split}.qrels", partial(self._write_qrels, inputs, rows, levels))
        work.facts |= {"levels": list(levels), "rows": [inputs.rows.start, inputs.rows.stop], "of": self.params.of}

    def _quantiles(self, inputs: ExportInputs) -> tuple[float, ...]:
        """Return cut points as quantiles of the scores of the neighbours to write."""
        queries = self._queries(inputs, inputs.rows)
        assert inputs.neighbours is not None
        # Every s-th group of queries, if there are more scores than the sample holds.
        groups = part_ranges(queries, _STEP)
        width = max(1, int(inputs.neighbours.manifest.facts["k"]))
        stride = -(-len(queries) * width // _SAMPLE)
        scores = [self._lists(inputs, group)["scores"].to_numpy() for group in groups[::stride]]
        values = np.concatenate(scores)
        cuts = np.quantile(values[np.isfinite(values)], self.params.quantiles)
        return tuple(sorted({float(np.float32(cut)) for cut in cuts}))

    def _queries(self, inputs: ExportInputs, rows: range) -> range:
        """Return the numbers of the queries of some captions: their rows, or the numbers of their images."""
        return rows if self.params.of == "captions" else inputs.corpus.images_of(rows)

    def _lists(self, inputs: ExportInputs, queries: range) -> pa.Table:
        """Return one row per neighbour of some queries, with ids, rank and score."""
        assert inputs.neighbours is not None
        first = self._queries(inputs, range(*inputs.neighbours.manifest.facts["rows"])).start
        table = inputs.neighbours.read_rows(queries, ["neighbours", "scores"], first)
        lists = combine_chunks(table["neighbours"])
        sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        corpus, numbers = inputs.corpus, np.repeat(np.arange(queries.start, queries.stop), sizes)
        by_image = self.params.of == "images"
        query_rows = corpus.indptr[numbers] if by_image else numbers
        ranks = np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
        return pa.table(
            {
                "query": corpus.table["image_id" if by_image else "caption_id"].take(pa.array(query_rows)),
                "caption": corpus.table["caption_id"].take(lists.flatten()),
                "rank": ranks,
                "scores": pc.list_flatten(table["scores"].combine_chunks()),
            }
        )

    def _write_run(self, inputs: ExportInputs, rows: range, path: Path) -> None:
        def lines(table: pa.Table) -> Iterator[str]:
            columns = [table[name].to_pylist() for name in ("query", "caption", "rank", "scores")]
            for query, caption, rank, score in zip(*columns, strict=True):
                # Nine digits give every float32 back.
                yield f"{query} Q0 {caption} {rank} {score:.9g} {inputs.label}\n"

        self._write_lines(inputs, rows, path, lines)

    def _write_qrels(self, inputs: ExportInputs, rows: range, levels: tuple[float, ...], path: Path) -> None:
        def lines(table: pa.Table) -> Iterator[str]:
            grades = grade(table["scores"].to_numpy(), levels).tolist()
            for query, caption, value in zip(
                table["query"].to_pylist(), table["caption"].to_pylist(), grades, strict=True
            ):
                if value:
                    yield f"{query} 0 {caption} {value}\n"

        self._write_lines(inputs, rows, path, lines)

    def _write_lines(self, inputs: ExportInputs, rows: range, path: Path, lines: Any) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for group in part_ranges(self._queries(inputs, rows), _STEP):
                table = self._lists(inputs, group)
                file.writelines(lines(table.filter(pc.is_finite(table["scores"]))))


def grade(scores: NDArray[np.floating[Any]], levels: tuple[float, ...]) -> NDArray[np.int64]:
    """Return the number of cut points that each score reaches."""
    return np.searchsorted(np.array(levels), scores, side="right")
