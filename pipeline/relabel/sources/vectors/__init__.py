"""Source `vectors`: embeddings that the user already has, of captions, of images, or of both.

With vectors of captions alone, the source equals sbert with another model. With vectors of images and captions in one
space (CLIP), the relevance of an image and a caption is the cosine of their vectors. BCLS (Li et al., arXiv 2210.11319)
reports 0.373 for CLIP on all pairs of CxC's SITS. No table shows this figure, because a file of vectors does not name
its model. With vectors of images alone, a caption has the vector of its image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding
from relabel.sources.cosine import STORED, StoredType, VectorSource, make_vector_spec, read_vectors, vectors_from_table
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.sources.spec import SourceParams
from relabel.sources.vectors.encode import IMAGES, ExternalVectorTasks, Length
from relabel.sources.vectors.files import ExternalVectors, read_vector_file, vector_file_digests
from relabel.sources.vectors.relevance import ExternalVectorRelevance
from relabel.store.arrays import write_array
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work

_FILES = ("captions", "caption_ids", "images", "image_ids")


class VectorsParams(SourceParams):
    """Parameters of vectors."""

    source: Literal["vectors"] = "vectors"
    pooling: Pooling = Field(
        "max",
        description="refs, the default with `images`, takes the vector of the image; others pool over its captions.",
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

    @model_validator(mode="before")
    @classmethod
    def _compare_images(cls, values: Any) -> Any:
        """Let vectors of images be compared unless another pooling is named."""
        if isinstance(values, dict) and values.get("images") is not None:
            return {"pooling": "refs", **values}
        return values

    @override
    def with_absolute_paths(self) -> Self:
        files = {name: getattr(self, name) for name in _FILES}
        return self.model_copy(
            update={name: str(Path(path).expanduser().absolute()) for name, path in files.items() if path}
        )


class Vectors(VectorSource[VectorsParams]):
    """Cosine of embeddings from files."""

    spec = replace(make_vector_spec("vectors", VectorsParams, version=1), refused_poolings={})

    def __init__(self, params: VectorsParams) -> None:
        has_images = params.images is not None
        refused: dict[Pooling, str] = (
            {} if has_images else {"refs": "it takes vectors of images, and `images` is not set"}
        )
        # The vector of an image is not that of a caption, so the order of the two counts.
        symmetric = not (has_images and params.captions is not None and params.pooling == "refs")
        self.spec = replace(self.spec, refused_poolings=refused, symmetric=symmetric)
        super().__init__(params)

    @override
    def compares_image_vectors(self) -> bool:
        return self.params.images is not None and (self.params.pooling == "refs" or self.params.captions is None)

    @override
    def query_blocker(self) -> str | None:
        return "given vectors have no model, so that a new text has no vector"

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the files identified by their sha256."""
        p = self.params
        self._check_files()
        params = p.model_dump(include={"source", "tensor", "length", "stored", "index"})
        for side, file, ids in (("captions", p.captions, p.caption_ids), ("images", p.images, p.image_ids)):
            params[side] = (
                None if file is None else vector_file_digests(_path(file), None if ids is None else _path(ids))
            )
        return params

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> ExternalVectorTasks:
        """Divide the encoding into shards of unit vectors (see `make_vector_table`) and a file of image vectors.

        Raises
        ------
        MissingError
            If a file is missing.
        CheckError
            If a file lacks an id of the corpus, or holds a row that is not a vector. The message names the ids.
        """
        p = self.params
        self._check_files()
        captions, images = self._opener(p.captions, p.caption_ids), self._opener(p.images, p.image_ids)
        return ExternalVectorTasks(
            corpus, rows, rows_per_shard, p.index, runtime.device, captions, images, p.length, p.stored
        )

    @override
    def write_lookup(
        self, folder: Path, manifest: Manifest, opened: Callable[[], Relevance], semantic: Mapping[str, Any], work: Work
    ) -> LookupArrays:
        arrays = super().write_lookup(folder, manifest, opened, semantic, work)
        if IMAGES not in manifest.files:
            return arrays
        write_array(work, "image_vectors", _read_image_vectors(folder).astype(STORED[arrays.dtype]))
        return replace(arrays, kind="image_vectors")

    @override
    def open(self, encoding: OpenEncoding) -> ExternalVectorRelevance:
        """Open the vectors. A new text has no vector."""
        rows, vectors, first = encoding.rows, read_vectors(encoding.folder, encoding.manifest), None
        if IMAGES in encoding.manifest.files:
            vectors = np.concatenate([vectors, _read_image_vectors(encoding.folder)])
            first = int(encoding.corpus.image[rows.start])
        return ExternalVectorRelevance(encoding.corpus, rows, self.params.pooling, vectors, _no_text, first_image=first)

    def _opener(self, file: str | None, ids: str | None) -> Callable[[], ExternalVectors] | None:
        """Return a function that opens a file of vectors; None without a file."""
        if file is None:
            return None
        return partial(read_vector_file, _path(file), None if ids is None else _path(ids), self.params.tensor)

    def _check_files(self) -> None:
        """Raise if no file of vectors is set."""
        if self.params.captions is None and self.params.images is None:
            raise UsageError(
                "no file of vectors is set", where="source vectors", todo="Set `captions`, `images`, or both."
            )


def _read_image_vectors(folder: Path) -> NDArray[np.float32]:
    """Read the vectors of the images of an encoding, (M, D) float32."""
    return vectors_from_table(pq.read_table(folder / IMAGES, columns=["vector"]))


def _path(text: str) -> Path:
    """Return a path with the home folder expanded."""
    return Path(text).expanduser()


def _no_text(_: str) -> NDArray[np.float32]:
    """Raise, because a new text has no vector."""
    raise UsageError("given vectors have no model: a new text has no vector", todo="Ask by a caption's id.")
