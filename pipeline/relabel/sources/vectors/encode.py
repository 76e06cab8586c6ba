"""Encoding of external vectors: gathered in the order of the corpus, checked, and scaled to unit length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.progress import Advance
from relabel.core.runtime import Device
from relabel.corpus import Corpus
from relabel.sources.cosine import INDEX, StoredType, VectorTasks, make_vector_table
from relabel.sources.vector_index import make_index
from relabel.sources.vectors.files import ExternalVectors
from relabel.store.fixed_parquet import write_plain
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

Length = Literal["normalise", "refuse"]
IMAGES = "images.parquet"
"""File of the image vectors, with the columns row (number of the image) and vector."""

_UNIT_TOLERANCE = 1e-3  # rounding error of a float16 vector's length
_SHORTEST = 1e-150  # squares of shorter lengths lose digits in float64; those of 1 / 1e-150 still fit


class ExternalVectorTasks(VectorTasks):
    """Work on an encoding of external vectors.

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
    captions, images : callable or None
        Open the files of vectors; at most one is None. Without vectors of captions, a caption has that of its image.
    length : "normalise" or "refuse"
        Whether vectors that do not have unit length are scaled or are an error.
    stored : "float32" or "float16"
        Type of the stored values.
    """

    derived_files = (INDEX, IMAGES)

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        index: str | None,
        device: Device,
        captions: Callable[[], ExternalVectors] | None,
        images: Callable[[], ExternalVectors] | None,
        length: Length,
        stored: StoredType,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard, index, device)
        self._captions, self._images, self.length, self.stored = captions, images, length, stored

    @override
    @property
    def title(self) -> str:
        """Title of the progress bar of the shards."""
        return "given vectors"

    def start(self, work: Work) -> None:
        """Check that every id has a vector and all vectors have one width, before anything is written."""
        super().start(work)
        widths = {}
        for vectors, ids, kind in self._sides:
            vectors.rows_of(ids, kind)
            widths[vectors.path.name] = vectors.width
        # Vectors of images and captions must lie in one space.
        if len(set(widths.values())) > 1:
            listing = ", ".join(f"{name} {width}" for name, width in widths.items())
            raise CheckError(f"vectors of captions and images differ in width: {listing}")
        if self.index is not None:
            # A factory string that faiss rejects is reported before any vector is read.
            make_index(self.index, next(iter(widths.values())))

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Return the task group that gathers the vectors of images."""
        if self._images is not None:
            yield TaskGroup("given vectors of images", "images", [Task(IMAGES, len(self.images))])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Write the vectors of images, or the index."""
        if task.file != IMAGES:
            return super().make_other(work, task, advance)
        vectors = self._vectors(self._image_vectors, np.array(self.images), self.corpus.image_ids)
        table = make_vector_table(self.images, vectors, self.stored)
        return work.file(IMAGES, lambda path: write_plain(path, [table], table.schema), rows=len(table))

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make the columns row and vector."""
        if self._captions is None:
            # Without vectors of captions, a caption has the vector of its image.
            owners = self.corpus.image[rows.start : rows.stop]
            vectors = self._vectors(self._image_vectors, owners, self.corpus.image_ids)
        else:
            vectors = self._vectors(self._caption_vectors, np.arange(rows.start, rows.stop), self.corpus.caption_ids)
        return make_vector_table(rows, vectors, self.stored)

    def finish(self, work: Work) -> None:
        """Record the files and the width in the manifest."""
        super().finish(work)
        work.facts |= {"width": self._sides[0][0].width, "unit_length": True, "stored": self.stored}
        work.facts["given"] = {
            kind: {"file": side.path.name, "vectors": len(side.row_of)} for side, _, kind in self._sides
        }
        work.facts["length"] = self.length

    @property
    def images(self) -> range:
        """Numbers of the images whose captions are encoded."""
        image = self.corpus.image
        return range(int(image[self.rows.start]), int(image[self.rows.stop - 1]) + 1)

    @property
    def _sides(self) -> list[tuple[ExternalVectors, list[str], str]]:
        """Each file of vectors, with the ids it must hold and their name in messages."""
        sides = []
        if self._captions is not None:
            sides.append((self._caption_vectors, self.corpus.caption_ids[self.rows.start : self.rows.stop], "captions"))
        if self._images is not None:
            sides.append((self._image_vectors, self.corpus.image_ids[self.images.start : self.images.stop], "images"))
        return sides

    def _vectors(self, source: ExternalVectors, numbers: NDArray[np.integer], ids: list[str]) -> NDArray[np.float32]:
        """Return vectors of unit length for some ids; raise if one is not a vector."""
        names = [ids[n] for n in numbers.tolist()]
        # In float64: float16 vectors of a model may have lengths that overflow in their own type.
        raw = np.asarray(source.vectors[source.rows_of(names, "ids")], np.float64)
        where = str(source.path)
        if len(bad := np.flatnonzero(~np.isfinite(raw).all(axis=1))):
            raise CheckError(f"{len(bad):,} vectors hold NaN or infinity; first {names[bad[0]]}", where=where)
        if len(bad := np.flatnonzero(~raw.any(axis=1))):
            raise CheckError(f"{len(bad):,} vectors are zero; first {names[bad[0]]}", where=where)
        # Lengths out of range overflow to inf or underflow to 0, and are refused below.
        with np.errstate(over="ignore", under="ignore"):
            norm = np.linalg.norm(raw, axis=1, keepdims=True)
        if len(bad := np.flatnonzero(~((norm > _SHORTEST) & (norm < 1 / _SHORTEST)))):
            message = f"{len(bad):,} vectors are too long or too short to have a length; first {names[bad[0]]}"
            raise CheckError(message, where=where, todo=f"Scale them: lengths from {_SHORTEST:.0e} on are read.")
        if self.length == "refuse" and len(bad := np.flatnonzero(np.abs(norm - 1) > _UNIT_TOLERANCE)):
            message = f"{len(bad):,} vectors are not of unit length; first {names[bad[0]]}: {norm[bad[0], 0]:.4g}"
            raise CheckError(message, where=where, todo="Set `length: normalise`, or divide them by their length.")
        return np.asarray(raw / norm, np.float32)

    @cached_property
    def _caption_vectors(self) -> ExternalVectors:
        """Vectors of captions, opened once."""
        assert self._captions is not None
        return self._captions()

    @cached_property
    def _image_vectors(self) -> ExternalVectors:
        """Vectors of images, opened once."""
        assert self._images is not None
        return self._images()
