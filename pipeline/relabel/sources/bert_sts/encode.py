"""Encoding of bert_sts: the token ids of every caption, shard by shard, so that pairs need no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from relabel.core.progress import Advance
from relabel.corpus import Corpus
from relabel.sources.models.files import ModelFiles
from relabel.sources.shards import ShardTasks
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.scorer import PairScorer

MODEL = "model.json"
"""Properties of the loaded model. The file is written first, and left out of the finished artefact."""


class CrossEncoderTasks(ShardTasks):
    """Work on an encoding of bert_sts.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Corpus rows to encode.
    rows_per_shard : int
    files : ModelFiles
    load : callable
        Loads the model.
    settings : dict
        Facts of the manifest that follow from the parameters alone.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        files: ModelFiles,
        load: Callable[[], PairScorer],
        settings: dict[str, Any],
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.files, self._load, self.settings = files, load, settings

    @cached_property
    def scorer(self) -> PairScorer:
        """The loaded model."""
        return self._load()

    @override
    @property
    def title(self) -> str:
        """Title of the progress bar of the shards."""
        return f"token ids ({self.files.name})"

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Return the task group that loads the model, so that a faulty model is reported before any work."""
        yield TaskGroup(f"model ({self.files.name})", "models", [Task(MODEL, 1)])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the properties of the loaded model."""
        if task.file != MODEL:
            return super().make_other(work, task, advance)
        properties = {"max_length": self.scorer.limit, "output": self.scorer.output, "scale": self.scorer.scale}
        execution = {name: getattr(self.scorer, name) for name in ("backend", "device", "left_out")}
        text = json.dumps({"said": properties, "ran": execution})
        return work.file(MODEL, lambda path: path.write_text(text, encoding="utf-8"))

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row (int32) and ids (list<int32>), without special tokens. Each distinct text is tokenized once."""
        texts = self.corpus.texts[rows.start : rows.stop]
        # `dict.fromkeys` keeps the order, so shards have the same bytes in every run.
        distinct = list(dict.fromkeys(texts))
        ids = dict(zip(distinct, self.scorer.tokenize(distinct), strict=True))
        row = np.arange(rows.start, rows.stop, dtype=np.int32)
        return pa.table({"row": row, "ids": pa.array([ids[text] for text in texts], pa.list_(pa.int32()))})

    def finish(self, work: Work) -> None:
        """Record the model and the settings in the manifest."""
        super().finish(work)
        model = json.loads((work.folder / MODEL).read_text(encoding="utf-8"))
        work.runtime |= {"model": self.files.record(), **model["ran"]}
        work.facts |= {"model": self.files.name, "captions": len(self.rows), **self.settings, **model["said"]}
        work.excluded.add(MODEL)
