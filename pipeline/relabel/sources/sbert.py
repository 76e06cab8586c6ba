"""sbert: cosine of sentence embeddings, with any sentence-transformers model (Reimers and Gurevych, EMNLP 2019).

BCLS, S-NDCG and ITM_CLS label with it, max over the five captions of an image. They do not name their checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from relabel.corpus import Corpus
from relabel.errors import CheckError
from relabel.runtime import Runtime
from relabel.sources.base import NO_PARTS, Kind, Pooling, Relevance, Source, SourceParams
from relabel.sources.model_files import DEFAULT_MODEL, ModelFiles, find_model
from relabel.sources.sbert_units import SbertUnits
from relabel.sources.shards import failed_rows
from relabel.sources.vectors import REFUSED, ComputeType, StoredType, VectorRelevance, read_vectors
from relabel.store.manifest import Manifest

if TYPE_CHECKING:
    from relabel.sources.sentence_encoder import SentenceEncoder


class SbertParams(SourceParams):
    """Parameters of sbert. Vectors are always of unit length."""

    source: Literal["sbert"] = "sbert"
    pooling: Pooling = Field("max", description="How the references of an image become one number.")
    model: str = Field(DEFAULT_MODEL, description="A sentence-transformers model: a folder, or a name on the hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for what is here.")
    prompt: str | None = Field(None, description="Put before every caption; null for the model's own default.")
    max_length: int | None = Field(None, ge=3, description="Tokens a caption is cut to; null for the model's own.")
    dtype: ComputeType = Field("float32", description="What matrix products are computed in: float32 or bfloat16.")
    stored: StoredType = Field("float32", description="Type of the stored vectors.")
    index: str | None = Field("Flat", description="faiss index factory string; null for no index.")

    def anywhere(self) -> SbertParams:
        """See SourceParams.anywhere."""
        folder = Path(self.model).expanduser()
        return self.model_copy(update={"model": str(folder.absolute())}) if folder.is_dir() else self


class Sbert(Source[SbertParams]):
    """Sentence embeddings."""

    name: ClassVar[str] = "sbert"
    kind: ClassVar[Kind] = "vectors"
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    symmetric: ClassVar[bool] = True
    version: ClassVar[int] = 2
    refused: ClassVar[dict[Pooling, str]] = REFUSED
    params_model: ClassVar[type[SourceParams]] = SbertParams

    def semantic(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """See Source.semantic. The model is pinned by its files, wherever they lie."""
        files = self._files(runtime)
        known = self.params.model_dump(
            include={"source", "revision", "prompt", "max_length", "dtype", "stored", "index"}
        )
        return known | {"model": {"sha256": files.sha256()}, "unit_length": True}

    def units(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> SbertUnits:
        """Shards of unit vectors (see `vector_table`), with a column `truncated` (bool).

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
        return SbertUnits(corpus, rows, rows_per_shard, p.index, files, load, p.dtype, p.stored)

    def open(
        self,
        corpus: Corpus,
        folder: Path,
        manifest: Manifest,
        runtime: Runtime,
        parts: Mapping[str, Relevance] = NO_PARTS,
    ) -> VectorRelevance:
        """See Source.open. A new text needs the model; all else does not."""
        rows = range(*manifest.facts["rows"])
        vectors, failed = read_vectors(folder, manifest), failed_rows(folder, manifest)
        return VectorRelevance(corpus, rows, self.params.pooling, vectors, self._encode_text(manifest, runtime), failed)

    def _files(self, runtime: Runtime) -> ModelFiles:
        return find_model(self.params.model, self.params.revision, runtime.progress)

    def _encoder(self, files: ModelFiles, runtime: Runtime) -> SentenceEncoder:
        from relabel.sources.sentence_encoder import SentenceEncoder

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
