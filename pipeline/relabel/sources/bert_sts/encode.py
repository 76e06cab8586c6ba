"""The work of bert_sts: the token ids of every caption, shard by shard, so that no pair is tokenized."""

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
"""What the model says of itself; made first, dropped at the end."""


class CrossEncoderTasks(ShardTasks):
    """Work on one encoding of bert_sts.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardTasks.
    files : ModelFiles
    load : callable
        Loads the model.
    said : dict
        Facts that the parameters alone decide.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        files: ModelFiles,
        load: Callable[[], PairScorer],
        said: dict[str, Any],
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.files, self._load, self.said = files, load, said

    @cached_property
    def scorer(self) -> PairScorer:
        """The loaded model."""
        return self._load()

    @override
    @property
    def title(self) -> str:
        return f"token ids ({self.files.name})"

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Load the model: what is wrong with it is known before any work."""
        yield TaskGroup(f"model ({self.files.name})", "models", [Task(MODEL, 1)])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write what the model says of itself."""
        if task.file != MODEL:
            return super().make_other(work, task, advance)
        said = {"max_length": self.scorer.limit, "output": self.scorer.output, "scale": self.scorer.scale}
        ran = {name: getattr(self.scorer, name) for name in ("backend", "device", "left_out")}
        text = json.dumps({"said": said, "ran": ran})
        return work.file(MODEL, lambda path: path.write_text(text, encoding="utf-8"))

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row int32, ids list<int32>: no special tokens; each distinct text is tokenized once."""
        texts = self.corpus.texts[rows.start : rows.stop]
        distinct = list(dict.fromkeys(texts))
        ids = dict(zip(distinct, self.scorer.tokenize(distinct), strict=True))
        row = np.arange(rows.start, rows.stop, dtype=np.int32)
        return pa.table({"row": row, "ids": pa.array([ids[text] for text in texts], pa.list_(pa.int32()))})

    def finish(self, work: Work) -> None:
        """Note the facts."""
        super().finish(work)
        model = json.loads((work.folder / MODEL).read_text(encoding="utf-8"))
        work.runtime |= {"model": self.files.record(), **model["ran"]}
        work.facts |= {"model": self.files.name, "captions": len(self.rows), **self.said, **model["said"]}
        work.excluded.add(MODEL)
