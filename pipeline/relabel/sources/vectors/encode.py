"""The work of given vectors: gathered in the corpus's order, checked, of unit length."""

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
from relabel.corpus import Corpus
from relabel.sources.cosine import INDEX, StoredType, VectorTasks, make_index, make_vector_table
from relabel.sources.vectors.files import Given
from relabel.store.fixed_parquet import write_plain
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

Length = Literal["normalise", "refuse"]
IMAGES = "images.parquet"
"""Beside the shards of caption vectors: row (an image's number) and vector."""

_UNIT = 1e-3  # what a float16 vector's length is off by
_SHORTEST = 1e-150  # the square of a shorter length loses digits in float64, that of 1 / 1e-150 still fits


class GivenTasks(VectorTasks):
    """Work on one encoding.

    Parameters
    ----------
    corpus, rows, rows_per_shard, index
        See VectorTasks.
    captions, images : callable or None
        Open the files of vectors; one of them may not be there. Without vectors of captions, a caption has that of its
        image.
    length : "normalise" or "refuse"
        What is done with vectors that are not of unit length.
    stored : "float32" or "float16"
    """

    derived_files = (INDEX, IMAGES)

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        index: str | None,
        captions: Callable[[], Given] | None,
        images: Callable[[], Given] | None,
        length: Length,
        stored: StoredType,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard, index)
        self._captions, self._images, self.length, self.stored = captions, images, length, stored

    @override
    @property
    def title(self) -> str:
        return "given vectors"

    def start(self, work: Work) -> None:
        """See whether every id has a vector, and all are of one width, before anything is written."""
        super().start(work)
        widths = {}
        for given, ids, what in self._sides:
            given.places(ids, what)
            widths[given.path.name] = given.width
        if len(set(widths.values())) > 1:
            said = ", ".join(f"{name} {width}" for name, width in widths.items())
            raise CheckError(f"vectors of captions and images differ in width: {said}")
        if self.index is not None:
            make_index(self.index, next(iter(widths.values())))

    def before_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Gather the vectors of images."""
        if self._images is not None:
            yield TaskGroup("given vectors of images", "images", [Task(IMAGES, len(self.images))])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Gather the vectors of images, or index."""
        if task.file != IMAGES:
            return super().make_other(work, task, advance)
        vectors = self._vectors(self._open_images, np.array(self.images), self.corpus.image_ids)
        table = make_vector_table(self.images, vectors, self.stored)
        return work.file(IMAGES, lambda path: write_plain(path, [table], table.schema), rows=len(table))

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row, vector."""
        if self._captions is None:
            owners = self.corpus.image[rows.start : rows.stop]
            vectors = self._vectors(self._open_images, owners, self.corpus.image_ids)
        else:
            vectors = self._vectors(self._open_captions, np.arange(rows.start, rows.stop), self.corpus.caption_ids)
        return make_vector_table(rows, vectors, self.stored)

    def finish(self, work: Work) -> None:
        """Note the facts."""
        super().finish(work)
        work.facts |= {"width": self._sides[0][0].width, "unit_length": True, "stored": self.stored}
        work.facts["given"] = {what: {"file": g.path.name, "vectors": len(g.place)} for g, _, what in self._sides}
        work.facts["length"] = self.length

    @property
    def images(self) -> range:
        """Numbers of the images whose captions are encoded."""
        image = self.corpus.image
        return range(int(image[self.rows.start]), int(image[self.rows.stop - 1]) + 1)

    @property
    def _sides(self) -> list[tuple[Given, list[str], str]]:
        """Each file with the ids it must have."""
        found = []
        if self._captions is not None:
            found.append((self._open_captions, self.corpus.caption_ids[self.rows.start : self.rows.stop], "captions"))
        if self._images is not None:
            found.append((self._open_images, self.corpus.image_ids[self.images.start : self.images.stop], "images"))
        return found

    def _vectors(self, given: Given, numbers: NDArray[np.integer], ids: list[str]) -> NDArray[np.float32]:
        """Gather vectors of unit length, and refuse what is no vector."""
        names = [ids[n] for n in numbers.tolist()]
        raw = np.asarray(given.vectors[given.places(names, "ids")], np.float64)
        where = str(given.path)
        if len(bad := np.flatnonzero(~np.isfinite(raw).all(axis=1))):
            raise CheckError(f"{len(bad):,} vectors hold NaN or infinity; first {names[bad[0]]}", where=where)
        if len(bad := np.flatnonzero(~raw.any(axis=1))):
            raise CheckError(f"{len(bad):,} vectors are zero; first {names[bad[0]]}", where=where)
        with np.errstate(over="ignore", under="ignore"):
            norm = np.linalg.norm(raw, axis=1, keepdims=True)
        if len(bad := np.flatnonzero(~((norm > _SHORTEST) & (norm < 1 / _SHORTEST)))):
            what = f"{len(bad):,} vectors are too long or too short to have a length; first {names[bad[0]]}"
            raise CheckError(what, where=where, todo=f"Scale them: lengths from {_SHORTEST:.0e} on are read.")
        if self.length == "refuse" and len(bad := np.flatnonzero(np.abs(norm - 1) > _UNIT)):
            what = f"{len(bad):,} vectors are not of unit length; first {names[bad[0]]}: {norm[bad[0], 0]:.4g}"
            raise CheckError(what, where=where, todo="Set `length: normalise`, or divide them by their length.")
        return np.asarray(raw / norm, np.float32)

    @cached_property
    def _open_captions(self) -> Given:
        assert self._captions is not None
        return self._captions()

    @cached_property
    def _open_images(self) -> Given:
        assert self._images is not None
        return self._images()
