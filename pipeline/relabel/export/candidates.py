"""Pairs of images and captions for scoring outside of relabel: neighbours by a cheap label, and pairs judged in CxC.

After a column `score` has been added, the source `scores` can read the files.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import MissingError, UsageError
from relabel.corpus import Corpus, References
from relabel.datasets import cxc
from relabel.export.base import Export, ExportInputs
from relabel.export.neighbours import matrix
from relabel.export.params import ExportCandidatesParams
from relabel.sources.judged import find_pairs
from relabel.store.workdir import Work

Keys = NDArray[np.int64]
"""Keys of pairs: image number * number of captions in the corpus + caption row."""


class CandidatesExport(Export[ExportCandidatesParams]):
    """One file per split, `SPLIT.parquet`, with the distinct pairs as columns `image_id`, `caption_id`, `caption`."""

    neighbours_of = "images"

    @override
    def check(self, inputs: ExportInputs) -> None:
        k, near = self.params.k, inputs.neighbours
        about = {"width": 0, "candidate_count": k} if near is None else near.manifest.metadata
        # In a small split, an image can have fewer than k candidates.
        if (width := int(about["width"])) < min(k, about["candidate_count"]):
            command = f"`relabel neighbours --label {inputs.label} --candidates {inputs.split} --queries images -k {k}`"
            raise MissingError(f"{inputs.label} has {width} neighbours per image, not {k}", hint=f"Run {command}.")
        judged = {"val", "test"} if inputs.corpus.namespace == cxc.NAMESPACE else set()
        if self.params.cxc and (without := sorted(set(inputs.splits) - judged)):
            problem = f"CxC has no judged pairs for {', '.join(without)} of {inputs.dataset}"
            raise UsageError(problem, hint="Omit --cxc, or use the split val or test of coco.")

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        corpus, near = inputs.corpus, inputs.neighbours
        for split, rows in inputs.splits.items():
            keys = [_judged(corpus, task, split) for task in self.params.cxc]
            keys.append(_keys(corpus, corpus.image[rows.start : rows.stop], np.array(rows)))
            for table in near.tables(corpus.images_of(rows), ["neighbours"]) if near is not None else ():
                best = matrix(table, "neighbours")[:, : self.params.k]
                keys.append(_keys(corpus, np.repeat(table["row"].to_numpy(), best.shape[1]), best.reshape(-1)))
            work.table(f"{split}.parquet", partial(_table, corpus, np.unique(np.concatenate(keys))))


def _keys(corpus: Corpus, image: NDArray[Any], row: NDArray[Any]) -> Keys:
    return np.asarray(image.astype(np.int64) * len(corpus) + row)


def _judged(corpus: Corpus, task: cxc.Task, split: Any) -> Keys:
    """Return the pairs that `relabel.judge.cxc` needs to score a task, as far as they are in the corpus."""
    kinds, sides = cxc.SIDES[task], np.stack(find_pairs(cxc.human_scores(task, split), corpus))
    sides = sides[:, (sides >= 0).all(axis=0)]

    def pairs(a: int, b: int) -> Keys:
        image = corpus.image[sides[a]] if kinds[a] == "caption" else sides[a]
        sets = References.single(sides[b]) if kinds[b] == "caption" else corpus.references(sides[b])
        return _keys(corpus, np.repeat(image, np.diff(sets.indptr)), sets.rows)

    # Pairs of an image and a caption have only one order.
    return pairs(1, 0) if task == "sits" else np.append(pairs(0, 1), pairs(1, 0))


def _table(corpus: Corpus, keys: Keys) -> pa.Table:
    image, row = np.divmod(keys, len(corpus))
    texts = corpus.table.select(["caption_id", "text"]).take(pa.array(row)).rename_columns(["caption_id", "caption"])
    return texts.add_column(0, "image_id", corpus.table["image_id"].take(pa.array(corpus.indptr[image])))
