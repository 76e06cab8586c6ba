"""Encoding of sbert: the properties of the model, shards of sentence embeddings, and their index."""

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
from relabel.core.runtime import Device
from relabel.corpus import Corpus
from relabel.sources.cosine import ComputeType, StoredType, make_vector_table
from relabel.sources.models.files import ModelFiles
from relabel.sources.shards import mark_failed
from relabel.sources.text_reuse import TextTasks
from relabel.sources.vector_index import make_index
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.models.encoder import SentenceEncoder

MODEL = "model.json"
"""Properties of the loaded model. The file is written first, and left out of the finished artefact."""
_NOT_FINITE = "the model gives no finite vector"
_TRIED = 8  # captions that are encoded first, to distinguish a broken model from a broken caption


class SbertTasks(TextTasks):
    """Work on an encoding of sbert. The model is loaded by the first task that needs it.

    A caption for which the model returns no finite vector is a failed row, with a vector of NaN.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Corpus rows to encode.
    rows_per_shard : int
    index : str or None
        Index factory string; None for no index.
    device : "auto", "cpu" or "cuda"
        Device that the index is built on.
    files : ModelFiles
    load : callable
        Loads the model.
    dtype : "float32" or "bfloat16"
        Type of matrix products.
    stored : "float32" or "float16"
        Type of the stored values.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        index: str | None,
        device: Device,
        files: ModelFiles,
        load: Callable[[], SentenceEncoder],
        dtype: ComputeType,
        stored: StoredType,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard, index, device)
        self.files, self.dtype, self.stored, self._load = files, dtype, stored, load

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The loaded model."""
        return self._load()

    @override
    @property
    def title(self) -> str:
        """Title of the progress bar of the shards."""
        return f"sentence embeddings ({self.files.name})"

    @override
    def has_batch_invariant_rows(self) -> bool:
        return self.encoder.batch_invariant

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Return the task group that loads the model, so that a faulty model or index is reported before any work."""
        yield TaskGroup(f"model ({self.files.name})", "models", [Task(MODEL, 1)])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the properties of the loaded model, or the index."""
        if task.file != MODEL:
            return super().make_other(work, task, advance)
        if self.index is not None:
            make_index(self.index, self.encoder.width)
        first = self.corpus.read("text", range(self.rows.start, min(self.rows.start + _TRIED, self.rows.stop)))
        if not np.isfinite(self.encoder.encode(first).vectors).any():
            where, todo = self.corpus.caption_ids[self.rows.start], "Use dtype float32, or another model."
            raise CheckError(f"{_NOT_FINITE} for the first {len(first)} captions", where=where, todo=todo)
        properties = {name: getattr(self.encoder, name) for name in ("width", "prompt", "max_length")}
        execution = {"backend": self.encoder.backend, "device": self.encoder.device, "left_out": self.encoder.left_out}
        text = json.dumps({"said": properties, "ran": execution})
        return work.file(MODEL, lambda path: path.write_text(text, encoding="utf-8"))

    def encode_rows(self, rows: NDArray[np.int64], advance: Advance) -> pa.Table:
        """Make the columns row, vector and truncated (bool) of some rows."""
        embeddings = self.encoder.encode(self.corpus.table["text"].take(pa.array(rows)).to_pylist(), advance)
        broken = np.flatnonzero(~np.isfinite(embeddings.vectors).all(axis=1))
        # A vector with one infinite component would otherwise have a cosine with other vectors.
        embeddings.vectors[broken] = np.nan
        table = make_vector_table(range(len(rows)), embeddings.vectors, self.stored)
        # Rows of a reused encoding have gaps, so the row numbers are not a range.
        table = table.set_column(0, "row", pa.array(rows.astype(np.int32)))
        table = table.append_column("truncated", pa.array(embeddings.truncated))
        return mark_failed(table, dict.fromkeys(broken.tolist(), _NOT_FINITE))

    def finish(self, work: Work) -> None:
        """Record the model and the truncated captions in the manifest."""
        super().finish(work)
        model = json.loads((work.folder / MODEL).read_text(encoding="utf-8"))
        work.runtime |= {"model": self.files.record(), "backend": model["ran"]["backend"]}
        work.runtime["device"] = model["ran"]["device"]
        if model["ran"]["left_out"]:
            work.runtime["left_out"] = model["ran"]["left_out"]
        truncated = sum(int(column.to_numpy().sum()) for column in self.read_column(work, "truncated"))
        work.facts |= self._facts(model["said"], truncated)
        work.excluded.add(MODEL)

    def _facts(self, properties: dict[str, Any], truncated: int) -> dict[str, Any]:
        """Return the facts of the manifest."""
        warnings = []
        if truncated:
            warnings.append(
                f"{truncated} captions are longer than {properties['max_length']} tokens: the rest is not seen"
            )
        return {
            "model": self.files.name,
            "width": properties["width"],
            "unit_length": True,
            "prompt": properties["prompt"],
            "max_length": properties["max_length"],
            "dtype": self.dtype,
            "stored": self.stored,
            "captions": len(self.rows),
            "truncated": truncated,
            "warnings": warnings,
        }
