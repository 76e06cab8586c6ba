"""The work of proxy features in units: what is held out and what is left, shards of vectors, their lengths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.errors import CheckError
from relabel.proxy.choice import Choice
from relabel.proxy.params import ProxyFeaturesParams
from relabel.store.atomic import write_text
from relabel.store.checked import save_array
from relabel.store.units import Advance, Phase, Unit, Units
from relabel.store.work import Work
from relabel_train.features import DESCRIPTION, FORMAT

if TYPE_CHECKING:
    from relabel.proxy.token_vectors import TokenEncoder

IMAGES, CAPTIONS, LENGTHS = "images.parquet", "captions.parquet", "lengths.npy"
STAND_IN = (
    "No image was seen: each is stood in for by the token vectors of one of its own captions, which is held out of "
    "text, retrieval and labels. Figures compare losses and labels with each other, not with published models."
)


class ProxyUnits(Units):
    """Work on one folder of proxy features."""

    def __init__(
        self, corpus: Corpus, choice: Choice, params: ProxyFeaturesParams, load: Callable[[], TokenEncoder]
    ) -> None:
        self.corpus, self.choice, self.params, self._load = corpus, choice, params, load
        count, step = len(choice), params.images_per_shard
        starts = range(0, count, step)
        self.parts = {
            f"features-{i:05d}-of-{len(starts):05d}.npy": range(a, min(a + step, count)) for i, a in enumerate(starts)
        }

    @cached_property
    def encoder(self) -> TokenEncoder:
        """The loaded model."""
        return self._load()

    def start(self, work: Work) -> None:
        """Write down what is held out, and what is left."""
        work.file(IMAGES, lambda path: pq.write_table(self.choice.images(self.corpus), path, compression="zstd"))
        work.file(CAPTIONS, lambda path: pq.write_table(self.choice.captions(self.corpus), path, compression="zstd"))

    def phases(self, work: Work) -> Iterator[Phase]:
        """See Units.phases."""
        yield Phase("token vectors", "images", [Unit(name, len(part)) for name, part in self.parts.items()])
        yield Phase("lengths", "files", [Unit(LENGTHS, 1)])

    def make(self, work: Work, unit: Unit, advance: Advance) -> None:
        """See Units.make."""
        if unit.file == LENGTHS:
            lengths = np.concatenate([self._lengths(work, name) for name in self.parts])
            work.file(LENGTHS, lambda path: save_array(path, lengths))
            advance(1)
            return
        rows = self.choice.row[self.parts[unit.file].start : self.parts[unit.file].stop]
        found = self.encoder.token_vectors([self.corpus.texts[i] for i in rows], self.params.vectors, advance)
        if len(bad := np.flatnonzero(~np.isfinite(found).all(axis=(1, 2)))):
            where = self.corpus.caption_ids[rows[bad[0]]]
            raise CheckError("the model gives no finite vectors", where=where, todo="Use another model.")
        work.file(unit.file, lambda path: save_array(path, found))

    def finish(self, work: Work) -> None:
        """Describe the files, for `relabel_train.features`, and note the facts."""
        width = np.load(work.folder / next(iter(self.parts)), mmap_mode="r", allow_pickle=False).shape[2]
        held_out = [self.corpus.caption_ids[i] for i in self.choice.row]
        said = {"stand_in": STAND_IN, "model": self.params.model, "vectors": self.params.vectors, "width": width}
        body = {
            "format": FORMAT,
            "kind": "proxy",
            **said,
            "files": list(self.parts),
            "image_ids": [self.corpus.image_ids[i] for i in self.choice.image],
            "held_out": held_out,
        }
        work.drop(DESCRIPTION)
        work.file(DESCRIPTION, lambda path: write_text(path, json.dumps(body, ensure_ascii=False, indent=0) + "\n"))
        splits = self.choice.images(self.corpus)["split"].value_counts().to_pylist()
        work.facts |= said | {"images": {s["values"]: s["counts"] for s in splits}, "held_out": len(held_out)}

    def _lengths(self, work: Work, name: str) -> NDArray[np.int64]:
        """Count an image's vectors, at least one: what is beyond them is zero."""
        found = np.load(work.folder / name, mmap_mode="r", allow_pickle=False)
        return np.asarray(np.maximum(1, (found != 0).any(axis=2).sum(axis=1)), np.int64)
