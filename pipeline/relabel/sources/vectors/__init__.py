"""vectors: embeddings that the user already has, of captions, of images, or of both, as a label like any other.

With vectors of captions alone it is what sbert is with a model. With vectors of images and captions from one space
(CLIP) the relevance of an image and a caption is the cosine of theirs. BCLS (Li et al., arXiv 2210.11319) reports 0.373
for CLIP on all pairs of CxC's SITS; no table shows this figure, because a file of vectors does not say its model.
With vectors of images alone a caption has that of its image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding, SourceParams
from relabel.sources.cosine import StoredType, VectorSource, make_vector_spec, read_vectors, vectors_from_table
from relabel.sources.vectors.encode import IMAGES, GivenTasks, Length
from relabel.sources.vectors.files import Given, given_files, read_given
from relabel.sources.vectors.relevance import GivenRelevance

_FILES = ("captions", "caption_ids", "images", "image_ids")


class VectorsParams(SourceParams):
    """Parameters of vectors."""

    source: Literal["vectors"] = "vectors"
    pooling: Pooling = Field(
        "max", description="refs: the vector of the references' image; others pool over their captions' vectors."
    )
    captions: str | None = Field(None, description="Vectors of captions: .npy, .parquet (id, vector) or .safetensors.")
    caption_ids: str | None = Field(
        None, description="Their ids: .txt, .json or .npy; null for NAME.ids.txt (.json, .npy) beside NAME.npy."
    )
    images: str | None = Field(None, description="Vectors of images, in the same formats; with `pooling: refs`.")
    image_ids: str | None = Field(None, description="Their ids, as caption_ids.")
    tensor: str | None = Field(None, description="Which tensor of safetensors files with several.")
    length: Length = Field(
        "normalise", description="Vectors not of unit length: normalise divides by it, refuse names the first."
    )
    stored: StoredType = Field("float32", description="Type of the stored vectors.")
    index: str | None = Field("Flat", description="faiss index factory string; null for no index.")

    @override
    def with_absolute_paths(self) -> Self:
        given = {name: getattr(self, name) for name in _FILES}
        return self.model_copy(update={n: str(Path(p).expanduser().absolute()) for n, p in given.items() if p})


class GivenVectors(VectorSource[VectorsParams]):
    """Embeddings from files."""

    spec = replace(make_vector_spec("vectors", VectorsParams, version=1), refused_poolings={})

    def __init__(self, params: VectorsParams) -> None:
        mixed = params.images is not None
        refused: dict[Pooling, str] = {} if mixed else {"refs": "it takes vectors of images, and `images` is not set"}
        symmetric = not (mixed and params.captions is not None and params.pooling == "refs")
        self.spec = replace(self.spec, refused_poolings=refused, symmetric=symmetric)
        super().__init__(params)

    @override
    def compares_image_vectors(self) -> bool:
        return self.params.images is not None and (self.params.pooling == "refs" or self.params.captions is None)

    @override
    def query_blocker(self) -> str | None:
        return "given vectors have no model, so that a new text has no vector"

    @override
    def lookup_blocker(self) -> str | None:
        own = "its images have vectors of their own, and a lookup holds those of captions"
        return None if self.params.images is None else own

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Files are pinned by what they hold, wherever they lie."""
        p = self.params
        self._refuse_nothing()
        known = p.model_dump(include={"source", "tensor", "length", "stored", "index"})
        for side, file, ids in (("captions", p.captions, p.caption_ids), ("images", p.images, p.image_ids)):
            known[side] = None if file is None else given_files(_path(file), None if ids is None else _path(ids))
        return known

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> GivenTasks:
        """Shards of unit vectors (see `make_vector_table`), and `images.parquet` where images have some.

        Raises
        ------
        MissingError
            If a file is not there.
        CheckError
            If it lacks an id of the corpus, or holds what is no vector; names the ids.
        """
        p = self.params
        self._refuse_nothing()
        captions, images = self._opener(p.captions, p.caption_ids), self._opener(p.images, p.image_ids)
        return GivenTasks(corpus, rows, rows_per_shard, p.index, captions, images, p.length, p.stored)

    @override
    def open(self, encoding: OpenEncoding) -> GivenRelevance:
        """A new text has no vector."""
        rows, vectors, first = encoding.rows, read_vectors(encoding.folder, encoding.manifest), None
        if IMAGES in encoding.manifest.files:
            vectors = np.concatenate(
                [vectors, vectors_from_table(pq.read_table(encoding.folder / IMAGES, columns=["vector"]))]
            )
            first = int(encoding.corpus.image[rows.start])
        return GivenRelevance(encoding.corpus, rows, self.params.pooling, vectors, _no_text, first_image=first)

    def _opener(self, file: str | None, ids: str | None) -> Callable[[], Given] | None:
        if file is None:
            return None
        return partial(read_given, _path(file), None if ids is None else _path(ids), self.params.tensor)

    def _refuse_nothing(self) -> None:
        if self.params.captions is None and self.params.images is None:
            raise UsageError("no vectors are given", where="source vectors", todo="Set `captions`, `images`, or both.")


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _no_text(_: str) -> NDArray[np.float32]:
    raise UsageError("given vectors have no model: a new text has no vector", todo="Ask by a caption's id.")
