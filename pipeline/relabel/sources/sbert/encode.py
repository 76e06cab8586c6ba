"""The work of sbert: what the model says of itself, shards of sentence embeddings, their index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.progress import Advance
from relabel.corpus import Corpus
from relabel.sources.cosine import ComputeType, StoredType, make_index, make_vector_table
from relabel.sources.models.files import ModelFiles
from relabel.sources.shards import mark_failed
from relabel.sources.text_reuse import TextTasks
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.models.encoder import SentenceEncoder

MODEL = "model.json"
"""What the model says of itself; made first, dropped at the end."""
_NOT_FINITE = "the model gives no finite vector"
_TRIED = 8  # captions that tell a broken model from a broken caption


class SbertTasks(TextTasks):
    """Work on one encoding of sbert; the model is loaded with the first task that needs it.

    A caption for which the model gives no finite vector is a failed row, its vector NaN.

    Parameters
    ----------
    corpus, rows, rows_per_shard, index
        See VectorTasks.
    files : ModelFiles
    load : callable
        Loads the model.
    dtype, stored
        See SbertParams.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        index: str | None,
        files: ModelFiles,
        load: Callable[[], SentenceEncoder],
        dtype: ComputeType,
        stored: StoredType,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard, index)
        self.files, self.dtype, self.stored, self._load = files, dtype, stored, load

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The loaded model."""
        return self._load()

    @override
    @property
    def title(self) -> str:
        return f"sentence embeddings ({self.files.name})"

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Load the model: what is wrong with it or the index is known before the long work."""
        yield TaskGroup(f"model ({self.files.name})", "models", [Task(MODEL, 1)])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write what the model says of itself."""
        if task.file != MODEL:
            return super().make_other(work, task, advance)
        if self.index is not None:
            make_index(self.index, self.encoder.width)
        first = self.corpus.texts[self.rows.start : self.rows.start + _TRIED]
        if not np.isfinite(self.encoder.encode(first).vectors).any():
            where, todo = self.corpus.caption_ids[self.rows.start], "Use dtype float32, or another model."
            raise CheckError(f"{_NOT_FINITE} for the first {len(first)} captions", where=where, todo=todo)
        said = {name: getattr(self.encoder, name) for name in ("width", "prompt", "max_length")}
        ran = {"backend": self.encoder.backend, "device": self.encoder.device, "left_out": self.encoder.left_out}
        text = json.dumps({"said": said, "ran": ran})
        return work.file(MODEL, lambda path: path.write_text(text, encoding="utf-8"))

    def encoded(self, rows: NDArray[np.int64], advance: Advance) -> pa.Table:
        """Make row, vector, truncated (bool)."""
        found = self.encoder.encode([self.corpus.texts[i] for i in rows], advance)
        broken = np.flatnonzero(~np.isfinite(found.vectors).all(axis=1))
        found.vectors[broken] = np.nan
        table = make_vector_table(range(len(rows)), found.vectors, self.stored)
        table = table.set_column(0, "row", pa.array(rows.astype(np.int32)))
        table = table.append_column("truncated", pa.array(found.truncated))
        return mark_failed(table, dict.fromkeys(broken.tolist(), _NOT_FINITE))

    def finish(self, work: Work) -> None:
        """Note the facts."""
        super().finish(work)
        model = json.loads((work.folder / MODEL).read_text(encoding="utf-8"))
        work.runtime |= {"model": self.files.record(), "backend": model["ran"]["backend"]}
        work.runtime["device"] = model["ran"]["device"]
        if model["ran"]["left_out"]:
            work.runtime["left_out"] = model["ran"]["left_out"]
        truncated = sum(int(column.to_numpy().sum()) for column in self.read_column(work, "truncated"))
        work.facts |= self._facts(model["said"], truncated)
        work.excluded.add(MODEL)

    def _facts(self, said: dict[str, Any], truncated: int) -> dict[str, Any]:
        warnings = []
        if truncated:
            warnings.append(f"{truncated} captions are longer than {said['max_length']} tokens: the rest is not seen")
        return {
            "model": self.files.name,
            "width": said["width"],
            "unit_length": True,
            "prompt": said["prompt"],
            "max_length": said["max_length"],
            "dtype": self.dtype,
            "stored": self.stored,
            "captions": len(self.rows),
            "truncated": truncated,
            "warnings": warnings,
        }
