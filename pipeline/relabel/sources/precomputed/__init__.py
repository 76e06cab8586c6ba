"""Source `precomputed`: the user's own embeddings of captions, of images, or of both.

With only caption vectors, the source works like sbert with another model. With image and caption vectors in a common
space (CLIP), the relevance of an image and a caption is the cosine of their vectors. With only image vectors, a caption
has the vector of its image.

BCLS (Li et al., arXiv 2210.11319) reports 0.373 for CLIP on all pairs of CxC's SITS. Tables do not show this value,
because a file of vectors does not name its model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import override

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.base import Encoding, Paths, SourceParams
from relabel.sources.cosine import (
    STORED,
    VectorRelevance,
    VectorSource,
    make_vector_spec,
    make_vector_table,
    read_vectors,
    vectors_from_table,
)
from relabel.sources.finder import Finder, Search
from relabel.sources.precomputed.files import ExternalVectors, read_vector_file, vector_file_digests
from relabel.sources.relevance import LookupArrays, Relevance, positions_in
from relabel.sources.shards import Shards
from relabel.store.arrays import write_array
from relabel.store.manifest import Manifest
from relabel.store.workdir import Step, Steps, Work, table_task

IMAGES = "images.parquet"
"""File of image vectors, with the columns row (image number) and vector."""

_SHORTEST = 1e-150  # minimum norm: smaller squares lose digits in float64; squares of 1 / 1e-150 do not overflow


class PrecomputedParams(SourceParams):
    """Parameters of precomputed."""

    paths: ClassVar[Paths] = {name: {None: None} for name in ("captions", "images")}
    source: Literal["precomputed"] = "precomputed"
    pooling: Pooling = Field(
        "max",
        description="set, the default with `images`, uses the vector of the image; others pool over its captions.",
    )
    captions: str | None = Field(
        None,
        description="File of caption vectors: .parquet (id, vector), or .npy or .safetensors with ids next to it in "
        "NAME.ids.txt (.json, .npy).",
    )
    images: str | None = Field(None, description="File of image vectors in the same formats, used with `pooling: set`.")

    def files(self) -> dict[str, Path]:
        """Return the files of vectors by side, `captions` or `images`."""
        sides = {"captions": self.captions, "images": self.images}
        return {side: Path(file).expanduser() for side, file in sides.items() if file is not None}

    @model_validator(mode="before")
    @classmethod
    def _compare_images(cls, values: Any) -> Any:
        """Change the default pooling to `set` if there are image vectors."""
        if isinstance(values, dict) and values.get("images") is not None:
            return {"pooling": "set", **values}
        return values


class Precomputed(VectorSource[PrecomputedParams]):
    """Cosine of embeddings from files."""

    spec = replace(
        make_vector_spec("precomputed", PrecomputedParams),
        refused_poolings={},
        refused={"query": "the vectors are read from files, and a new text has no vector"},
    )

    def __init__(self, params: PrecomputedParams) -> None:
        has_images = params.images is not None
        refused: dict[Pooling, str] = {} if has_images else {"set": "it needs image vectors, but `images` is not set"}
        # With vectors of both, the relevance depends on which item is the image.
        symmetric = not (has_images and params.captions is not None and params.pooling == "set")
        # With vectors of both, only pooling `set` uses image vectors.
        compared = has_images and (params.pooling == "set" or params.captions is None)
        self.spec = replace(self.spec, refused_poolings=refused, symmetric=symmetric, image_vectors=compared)
        super().__init__(params)

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the sha256 of the files."""
        if not (files := self.params.files()):
            message, hint = "no file of vectors is set", "Set `captions`, `images`, or both."
            raise UsageError(message, where="source vectors", hint=hint)
        digests = {side: vector_file_digests(path) for side, path in files.items()}
        return {"source": self.spec.name, "captions": None, "images": None} | digests

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the steps of a file of image vectors and of shards of unit vectors (see `make_vector_table`).

        Without caption vectors, a caption has the vector of its image.
        """
        p, shards = self.params, Shards(corpus, rows, rows_per_shard)
        files = p.files()
        numbers = range(int(corpus.image[rows.start]), int(corpus.image[rows.stop - 1]) + 1)

        @cache
        def read(side: str) -> ExternalVectors:
            return read_vector_file(files[side])

        def sides() -> list[tuple[ExternalVectors, list[str], str]]:
            """Return each file of vectors, with the required ids and their name in messages."""
            ids = {"captions": corpus.caption_ids[rows.start : rows.stop]}
            ids["images"] = corpus.image_ids[numbers.start : numbers.stop]
            return [(read(side), ids[side], side) for side in files]

        def image_table() -> pa.Table:
            vectors = _unit_vectors(read("images"), np.array(numbers), corpus.image_ids)
            return make_vector_table(numbers, vectors)

        def make_shard(part: range) -> pa.Table:
            side, ids, at = "captions", corpus.caption_ids, np.arange(part.start, part.stop, dtype=np.int32)
            if side not in files:
                side, ids, at = "images", corpus.image_ids, corpus.image[part.start : part.stop]
            return make_vector_table(part, _unit_vectors(read(side), at, ids))

        # Check before writing that every id has a vector, and that all vectors have the same width.
        for side, ids, kind in sides():
            side.rows_of(ids, kind)
        if len({side.width for side, _, _ in sides()}) > 1:
            listing = ", ".join(f"{side.path.name} {side.width}" for side, _, _ in sides())
            raise CheckError(f"vectors of captions and images differ in width: {listing}")
        if p.images is not None:
            task = table_task(IMAGES, image_table, len(numbers), plain=True)
            yield Step("given vectors of images", "images", [task])
        yield shards.step("given vectors", make_shard, plain=True)
        work.metadata |= {"width": sides()[0][0].width, "unit_length": True}
        work.metadata["given"] = {
            kind: {"file": side.path.name, "vectors": len(side.row_of)} for side, _, kind in sides()
        }

    @override
    def write_lookup(
        self, folder: Path, manifest: Manifest, opened: Callable[[], Relevance], config: Mapping[str, Any], work: Work
    ) -> LookupArrays:
        arrays = super().write_lookup(folder, manifest, opened, config, work)
        if IMAGES not in manifest.files:
            return arrays
        write_array(work, "image_vectors", _read_image_vectors(folder).astype(STORED[arrays.dtype]))
        return replace(arrays, kind="image_vectors")

    @override
    def open(self, encoding: Encoding) -> ExternalVectorRelevance:
        """Open the vectors. New texts are not supported."""
        rows, vectors, first = encoding.rows, read_vectors(encoding.folder, encoding.manifest), None
        if IMAGES in encoding.manifest.files:
            vectors = np.concatenate([vectors, _read_image_vectors(encoding.folder)])
            first = int(encoding.corpus.image[rows.start])
        return ExternalVectorRelevance(encoding.corpus, rows, self.params.pooling, vectors, _no_text, first_image=first)


def _read_image_vectors(folder: Path) -> NDArray[np.float32]:
    """Read the image vectors of an encoding, (M, D) float32."""
    return vectors_from_table(pq.read_table(folder / IMAGES, columns=["vector"]))


def _no_text(_: str) -> NDArray[np.float32]:
    """Raise, because a new text has no vector."""
    raise UsageError("vectors from files have no model for new texts", hint="Use the id of a caption.")


def _unit_vectors(source: ExternalVectors, numbers: NDArray[np.integer], ids: list[str]) -> NDArray[np.float32]:
    """Return the normalized vectors of the ids at `numbers`; raise if a vector is missing or cannot be normalized."""
    names = [ids[n] for n in numbers.tolist()]
    # In float64, because norms of float16 vectors may overflow in float16.
    raw = np.asarray(source.vectors[source.rows_of(names, "ids")], np.float64)
    # Norms out of range overflow to inf or underflow to 0.
    with np.errstate(over="ignore", under="ignore"):
        norm = np.linalg.norm(raw, axis=1, keepdims=True)
    if len(bad := np.flatnonzero(~((norm > _SHORTEST) & (norm < 1 / _SHORTEST)))):
        message = f"{len(bad):,} vectors cannot be normalized: they are zero, not finite, or their norm is out of range"
        raise CheckError(f"{message}; first {names[bad[0]]}", where=str(source.path))
    return np.asarray(raw / norm, np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class ExternalVectorRelevance(VectorRelevance):
    """Cosine of external vectors. Pooling `set` gives the cosine of the references' image and the caption.

    `vectors`: caption vectors, followed by image vectors at positions after the encoded rows.
    `first_image`: number of the first image with a vector, or None if there are no image vectors.
    """

    first_image: int | None = None

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return super().pairs(*self._sides(references, captions, pooling or self.pooling))

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return super().block(*self._sides(references, captions, pooling or self.pooling))

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        queries, _, resolved = self._sides(search.queries, search.candidates, pooling or self.pooling)
        return super().finder(replace(search, queries=queries), resolved, runtime)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        if self.first_image is None:
            return super().write_lookup(work)
        captions = len(self.rows)
        write_array(work, "vectors", np.asarray(self.vectors[:captions], "<f4"))
        write_array(work, "image_vectors", np.asarray(self.vectors[captions:], "<f4"))
        return LookupArrays("image_vectors", "float32", self.failed)

    def _sides(self, references: References, captions: Rows, pooling: Pooling) -> tuple[References, Rows, Pooling]:
        """Replace sets by their images if the pooling is `set`. Raises IndexError if a row is not encoded."""
        # Checked here, because rows after the captions are image vectors.
        for rows in (references.rows, captions):
            positions_in(rows, self.rows)
        if pooling != "set" or self.first_image is None:
            return references, captions, pooling
        image: NDArray[np.int32] = self.corpus.image[references.rows[references.indptr[:-1]]]
        # A set becomes a single reference, its image. Pooling `first` then gives the cosine.
        return References.single(self.rows.stop + image - self.first_image), captions, "first"
