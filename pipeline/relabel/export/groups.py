"""Captions with lists of positives and negatives and their scores, for knowledge distillation.

docs/distillation.md describes how the trainers use the scores. Lines without a positive or a negative are left out,
because the trainers draw one of each.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from relabel.core.types import Rows
from relabel.export.pairs import CandidatePool, SamplesExport, ranked
from relabel.export.params import ExportGroupsParams
from relabel.store.workdir import Work, part_ranges

_STEP = 10_000  # queries in memory
Passage = dict[str, Any]
"""A caption: docid, text and score. A query has no score."""


class GroupsExport(SamplesExport[ExportGroupsParams]):
    """JSON Lines files ``data/SPLIT-00000-of-000NN.jsonl``. Positives and negatives are sorted by descending score."""

    minimum = 3
    candidates = 24

    @override
    def write_file(self, work: Work, name: str, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> None:
        work.file(f"{name}.jsonl", partial(self._write, pool, anchors, rng))

    def _write(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator, path: Path) -> None:
        seen = set[int]()
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for part in part_ranges(range(len(anchors)), _STEP):
                for record in self._records(pool, anchors[part.start : part.stop], rng, seen):
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _records(
        self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator, seen: set[int]
    ) -> Iterator[dict[str, Any]]:
        """Yield the lines of the anchors, skipping texts that have been seen."""
        rows, scores, own = pool.candidates(anchors, self.candidates, rng)
        captions = pool.corpus.table.select(["caption_id", "text"]).rename_columns(["docid", "text"])
        # One take for all anchors, because each call costs as much as a copy of the table.
        texts = iter(captions.take(pa.array(np.column_stack([anchors, rows]).reshape(-1))).to_pylist())
        for row, values, side in zip(rows, scores, self.sides(scores, own), strict=True):
            query, *passages = islice(texts, 1 + len(row))
            order = ranked(row, pool.text[row], values, side)
            scaled = (self.params.scale * values[order]).tolist()
            results = [passages[i] | {"score": score} for i, score in zip(order, scaled, strict=True)]
            count = int((side[order] > 0).sum())
            key = hash((query["text"], *(passage["text"] for passage in results)))
            if 0 < count < len(results) and key not in seen:
                seen.add(key)
                yield self.record(query, results[:count], results[count:])

    @abstractmethod
    def record(self, query: Passage, positives: list[Passage], negatives: list[Passage]) -> dict[str, Any]:
        """Return the JSON object of one line."""


class FlagEmbeddingExport(GroupsExport):
    """Keys query, pos, neg, pos_scores and neg_scores, and the ids query_id, pos_ids and neg_ids."""

    @override
    def record(self, query: Passage, positives: list[Passage], negatives: list[Passage]) -> dict[str, Any]:
        line = {"query": query["text"], "query_id": query["docid"]}
        for side, passages in (("pos", positives), ("neg", negatives)):
            for name, key in (("", "text"), ("_scores", "score"), ("_ids", "docid")):
                line[f"{side}{name}"] = [passage[key] for passage in passages]
        return line


class TevatronExport(GroupsExport):
    """Keys query_id, query, positive_passages and negative_passages; a passage has docid, text and score."""

    @override
    def record(self, query: Passage, positives: list[Passage], negatives: list[Passage]) -> dict[str, Any]:
        line = {"query_id": query["docid"], "query": query["text"]}
        return line | {"positive_passages": positives, "negative_passages": negatives}
