"""Pairs of images and captions for a judge outside of relabel to score, chosen by a cheap label and by human scores.

With a column `score`, a file is one that the source `scores` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import MissingError, UsageError
from relabel.corpus import Corpus
from relabel.datasets import cxc
from relabel.export.base import Export, ExportInputs, write_tables
from relabel.export.neighbours import matrix
from relabel.export.params import ExportCandidatesParams
from relabel.store.workdir import Work

_PAIRS = 1 << 17  # pairs in memory as texts
Keys = NDArray[np.int64]
"""Pairs: the number of the image times the captions of the corpus, plus the row of the caption."""


class CandidatesExport(Export[ExportCandidatesParams]):
    """One file per split, `SPLIT.parquet` (csv, jsonl): `image_id`, `caption_id` and `caption`; each pair once."""

    neighbours_of = "images"

    @override
    def check(self, inputs: ExportInputs) -> None:
        params, near = self.params, inputs.neighbours
        if needed := max(params.k, params.negatives):
            width = 0 if near is None else int(near.manifest.metadata["width"])
            if width < needed:
                command = f"`relabel neighbours --label {inputs.label} --candidates {inputs.split} --queries images`"
                problem = f"{needed} neighbours per image are needed, {inputs.label} has {width}"
                raise MissingError(problem, todo=f"Run {command}, with -k {needed} or more.")
        judged = {"val", "test"} if inputs.corpus.namespace == cxc.NAMESPACE else set()
        if params.cxc and (without := set(inputs.splits) - judged):
            problem = f"people have not judged {', '.join(sorted(without))} of {inputs.dataset}"
            raise UsageError(problem, todo="Leave out --cxc, or name val or test of coco.")

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        corpus, form, counts = inputs.corpus, self.params.format, {}
        for split, rows in inputs.splits.items():
            judged = [_judged(corpus, task, split) for task in self.params.cxc]
            keys = np.unique(np.concatenate([np.empty(0, np.int64), *self._near(inputs, rows), *judged]))
            work.file(f"{split}.{form}", partial(_write, corpus, keys, form))
            counts[split] = len(keys)
        work.metadata["pairs"] = counts

    def _near(self, inputs: ExportInputs, rows: range) -> Iterator[Keys]:
        """Yield the nearest captions of each image, and the nearest ones of other images."""
        k, negatives = self.params.k, self.params.negatives
        if inputs.neighbours is None or not max(k, negatives):
            return
        for table in inputs.neighbours.tables(inputs.corpus.images_of(rows), ["neighbours", "same_image"]):
            near, other = matrix(table, "neighbours"), ~matrix(table, "same_image")
            chosen = other & (np.cumsum(other, axis=1) <= negatives)
            chosen[:, :k] = True
            yield (table["row"].to_numpy().astype(np.int64)[:, None] * len(inputs.corpus) + near)[chosen]


def _judged(corpus: Corpus, task: cxc.Task, split: str) -> Keys:
    """Return the pairs of which `relabel.judge.cxc` makes the relevance of a task, those that the corpus has."""
    human, index = cxc.human_scores(task, split), {"caption": corpus.row_of, "image": corpus.image_of}  # type: ignore[arg-type]
    kinds = zip((human.left, human.right), cxc.SIDES[task], strict=True)
    left, right = (np.array([index[kind].get(i, -1) for i in ids], np.int32) for ids, kind in kinds)
    known = (left >= 0) & (right >= 0)
    left, right = left[known], right[known]
    if task == "sits":
        pairs = [(right, left)]
    elif task == "sts":
        pairs = [(corpus.image[left], right), (corpus.image[right], left)]
    else:
        sets = [(one, corpus.references(other)) for one, other in ((left, right), (right, left))]
        pairs = [(np.repeat(one, np.diff(others.indptr)), others.rows) for one, others in sets]
    return np.concatenate([image.astype(np.int64) * len(corpus) + row for image, row in pairs])


def _write(corpus: Corpus, keys: Keys, form: str, path: Path) -> None:
    """Write pairs in one of the formats."""
    columns = {"image_id": "image_id", "caption_id": "caption_id", "caption": "text"}

    def tables() -> Iterator[pa.Table]:
        # At least one table, which has the columns.
        for a in range(0, max(1, len(keys)), _PAIRS):
            image, row = np.divmod(keys[a : a + _PAIRS], len(corpus))
            rows = {"image_id": pa.array(corpus.indptr[image])}
            yield pa.table({name: corpus.table[of].take(rows.get(name, pa.array(row))) for name, of in columns.items()})

    if form == "parquet":
        write_tables(path, tables())
    elif form == "csv":
        from pyarrow import csv

        with csv.CSVWriter(path, pa.schema({name: pa.string() for name in columns})) as writer:
            for table in tables():
                writer.write_table(table)
    else:
        with path.open("w", encoding="utf-8") as file:
            for table in tables():
                file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in table.to_pylist())
