"""sbert: cosine of sentence embeddings, with any sentence-transformers model (Reimers and Gurevych, EMNLP 2019).

BCLS, S-NDCG and ITM_CLS label with it, max over the five captions of an image. They do not name their checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding, SourceParams
from relabel.sources.cosine import (
    ComputeType,
    StoredType,
    VectorRelevance,
    VectorSource,
    make_vector_spec,
    read_vectors,
)
from relabel.sources.models.files import DEFAULT_MODEL, ModelFiles, find_model
from relabel.sources.sbert.encode import SbertTasks
from relabel.sources.shards import read_failed_rows
from relabel.store.manifest import Manifest

if TYPE_CHECKING:
    from relabel.sources.models.encoder import SentenceEncoder


class SbertParams(SourceParams):
    """Parameters of sbert. Vectors are always of unit length."""

    source: Literal["sbert"] = "sbert"
    pooling: Pooling = Field("max", description="How the references of an image become one number.")
    model: str = Field(DEFAULT_MODEL, description="A sentence-transformers model: a folder, or a name on the hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for what is here.")
    prompt: str | None = Field(None, description="Put before every caption; null for the model's own default.")
    max_length: int | None = Field(
        None, ge=3, le=1_000_000, description="Tokens a caption is cut to; null for the model's own."
    )
    dtype: ComputeType = Field("float32", description="What matrix products are computed in: float32 or bfloat16.")
    stored: StoredType = Field("float32", description="Type of the stored vectors.")
    index: str | None = Field("Flat", description="faiss index factory string; null for no index.")

    @override
    def with_absolute_paths(self) -> Self:
        folder = Path(self.model).expanduser()
        return self.model_copy(update={"model": str(folder.absolute())}) if folder.is_dir() else self


class Sbert(VectorSource[SbertParams]):
    """Sentence embeddings."""

    spec = make_vector_spec("sbert", SbertParams, version=2)

    @override
    def model_folder(self) -> Path | None:
        return Path(self.params.model).expanduser()

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """The model is pinned by its files, wherever they lie."""
        files = self._files(runtime)
        known = self.params.model_dump(
            include={"source", "revision", "prompt", "max_length", "dtype", "stored", "index"}
        )
        return known | {"model": {"sha256": files.sha256()}, "unit_length": True}

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> SbertTasks:
        """Shards of unit vectors (see `make_vector_table`), with a column `truncated` (bool).

        A caption for which the model gives no finite vector is a failed row.

        Raises
        ------
        MissingError
            If the model is nowhere.
        CheckError
            If it gives no finite vector for any of the first captions.
        UsageError
            If faiss does not take `index`, or the model does not take `max_length`.
        """
        p, files = self.params, self._files(runtime)
        load = partial(self._encoder, files, runtime)
        return SbertTasks(corpus, rows, rows_per_shard, p.index, files, load, p.dtype, p.stored)

    @override
    def open(self, encoding: OpenEncoding) -> VectorRelevance:
        """A new text needs the model; all else does not."""
        rows = encoding.rows
        vectors, failed = (
            read_vectors(encoding.folder, encoding.manifest),
            read_failed_rows(encoding.folder, encoding.manifest),
        )
        return VectorRelevance(
            encoding.corpus,
            rows,
            self.params.pooling,
            vectors,
            self._encode_text(encoding.manifest, encoding.runtime),
            failed,
        )

    def _files(self, runtime: Runtime) -> ModelFiles:
        return find_model(self.params.model, self.params.revision, runtime.progress)

    def _encoder(self, files: ModelFiles, runtime: Runtime) -> SentenceEncoder:
        from relabel.sources.models.encoder import SentenceEncoder

        p = self.params
        return SentenceEncoder(files.folder, p.prompt, p.max_length, p.dtype, runtime)

    def _encode_text(self, manifest: Manifest, runtime: Runtime) -> Callable[[str], NDArray[np.float32]]:
        """Load the model at the first new text, and hold it against the one the encoding was made with."""

        @cache
        def encoder() -> SentenceEncoder:
            files = self._files(runtime)
            if files.sha256() != manifest.semantic["model"]["sha256"]:
                what = "this is not the model that the encoding was made with"
                raise CheckError(what, where=str(files.folder), todo="Encode again.")
            return self._encoder(files, runtime)

        def encode(text: str) -> NDArray[np.float32]:
            typed = text.encode(errors="replace").decode()  # a terminal can pass what is no Unicode
            vector: NDArray[np.float32] = encoder().encode([typed]).vectors[0]
            return vector

        return encode
