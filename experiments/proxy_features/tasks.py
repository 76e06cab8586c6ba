"""Files of a folder of proxy features: held-out captions, shards of token vectors, lengths, description."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from experiments.params import ProxyFeaturesParams
from experiments.proxy_features.held_out import HeldOut
from relabel.core.errors import CheckError
from relabel.core.runtime import Advance
from relabel.corpus import Corpus
from relabel.store.arrays import save_array
from relabel.store.files import write_text
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work
from relabel_train.features import DESCRIPTION, FORMAT

if TYPE_CHECKING:
    from experiments.proxy_features.token_vectors import TokenEncoder

IMAGES, CAPTIONS, LENGTHS = "images.parquet", "captions.parquet", "lengths.npy"
STAND_IN = (
    "No image was seen: each is stood in for by the token vectors of one of its own captions, which is held out of "
    "text, retrieval and labels. Figures compare losses and labels with each other, not with published models."
)


class ProxyTasks(Tasks):
    """Tasks that write one folder of proxy features."""

    def __init__(
        self, corpus: Corpus, held_out: HeldOut, params: ProxyFeaturesParams, load: Callable[[], TokenEncoder]
    ) -> None:
        self.corpus, self.held_out, self.params, self._load = corpus, held_out, params, load
        count, step = len(held_out), params.images_per_shard
        starts = range(0, count, step)
        self.shards = {
            f"features-{i:05d}-of-{len(starts):05d}.npy": range(a, min(a + step, count)) for i, a in enumerate(starts)
        }

    @cached_property
    def encoder(self) -> TokenEncoder:
        """The loaded model."""
        return self._load()

    def start(self, work: Work) -> None:
        """Write the tables of held-out and of remaining captions."""
        work.file(IMAGES, lambda path: pq.write_table(self.held_out.images(self.corpus), path, compression="zstd"))
        work.file(CAPTIONS, lambda path: pq.write_table(self.held_out.captions(self.corpus), path, compression="zstd"))

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Yield the shards of vectors, then the file of lengths, which is computed from them."""
        yield TaskGroup("token vectors", "images", [Task(name, len(part)) for name, part in self.shards.items()])
        yield TaskGroup("lengths", "files", [Task(LENGTHS, 1)])

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Write one file.

        Raises
        ------
        CheckError
            If the model returns a vector that is not finite.
        """
        # The shards are complete: groups run one after the other.
        if task.file == LENGTHS:
            lengths = np.concatenate([self._lengths(work, name) for name in self.shards])
            work.file(LENGTHS, lambda path: save_array(path, lengths))
            advance(1)
            return
        shard = self.shards[task.file]
        rows = self.held_out.row[shard.start : shard.stop]
        vectors = self.encoder.token_vectors([self.corpus.texts[i] for i in rows], self.params.vectors, advance)
        if len(bad := np.flatnonzero(~np.isfinite(vectors).all(axis=(1, 2)))):
            where = self.corpus.caption_ids[rows[bad[0]]]
            raise CheckError("the model gives no finite vectors", where=where, todo="Use another model.")
        work.file(task.file, lambda path: save_array(path, vectors))

    def finish(self, work: Work) -> None:
        """Write the description that `relabel_train.features` reads, and the facts of the manifest."""
        width = np.load(work.folder / next(iter(self.shards)), mmap_mode="r", allow_pickle=False).shape[2]
        held_out = [self.corpus.caption_ids[i] for i in self.held_out.row]
        about = {"stand_in": STAND_IN, "model": self.params.model, "vectors": self.params.vectors, "width": width}
        body = {
            "format": FORMAT,
            "kind": "proxy",
            **about,
            "files": list(self.shards),
            "image_ids": [self.corpus.image_ids[i] for i in self.held_out.image],
            "held_out": held_out,
        }
        # Work of an interrupted run may hold a description of other shards.
        work.drop(DESCRIPTION)
        work.file(DESCRIPTION, lambda path: write_text(path, json.dumps(body, ensure_ascii=False, indent=0) + "\n"))
        splits = self.held_out.images(self.corpus)["split"].value_counts().to_pylist()
        work.facts |= about | {"images": {s["values"]: s["counts"] for s in splits}, "held_out": len(held_out)}

    def _lengths(self, work: Work, name: str) -> NDArray[np.int64]:
        """Return the number of vectors per image, without padding and at least one."""
        vectors = np.load(work.folder / name, mmap_mode="r", allow_pickle=False)
        return np.asarray(np.maximum(1, (vectors != 0).any(axis=2).sum(axis=1)), np.int64)
