"""Source `sbert`: cosine of sentence embeddings, with any sentence-transformers model (Reimers, Gurevych, EMNLP 2019).

BCLS, S-NDCG and ITM_CLS compute labels with it, as the maximum over the five captions of an image. These papers do not
name their checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding, Paths, SourceParams
from relabel.sources.cosine import (
    ComputeType,
    StoredType,
    VectorRelevance,
    VectorSource,
    make_vector_spec,
    make_vector_table,
    read_vectors,
)
from relabel.sources.models.files import DEFAULT_MODEL, ModelFiles, find_model
from relabel.sources.models.tasks import model_step, record_model
from relabel.sources.sbert.quantize import KIND, MODEL, draw_sample, int8_recipe
from relabel.sources.shards import Shards, mark_failed, read_failed_rows
from relabel.store.artefact import Recipe
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel.store.workdir import Steps, Work

if TYPE_CHECKING:
    from relabel.sources.models.encoder import SentenceEncoder


TUNED = "tuned"
"""Name of the model that `relabel tune sbert` makes."""
TUNED_FOLDER = "sbert-cxc"
"""Folder of that model among the fetched files."""
INT8 = "int8"
"""Name of the model that labels of type int8 need."""

_NOT_FINITE = "the model gives no finite vector"
_TRIED = 8  # captions that are encoded first, to distinguish a broken model from a broken caption


class SbertParams(SourceParams):
    """Parameters of sbert. Vectors always have unit length."""

    paths: ClassVar[Paths] = {"model": {TUNED: TUNED_FOLDER}}
    source: Literal["sbert"] = "sbert"
    pooling: Pooling = Field("max", description="Pooling of an image's references into one number.")
    model: str = Field(
        DEFAULT_MODEL,
        description="A sentence-transformers model: a folder, a name on the hub, or `tuned` (made by "
        "`relabel tune sbert`).",
    )
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for the local copy.")
    prompt: str | None = Field(None, description="Text before every caption; null for the model's default.")
    max_length: int | None = Field(
        None, ge=3, le=1_000_000, description="Tokens a caption is truncated to; null for the model's limit."
    )
    dtype: ComputeType | Literal["int8"] = Field(
        "float32", description="Type of matrix products: float32, bfloat16, or int8 (on CPUs, by openvino)."
    )
    stored: StoredType = Field("float32", description="Type of the stored vectors.")

    @override
    def tuned_models(self) -> tuple[str, ...]:
        return (INT8,) if self.dtype == INT8 else ()


class Sbert(VectorSource[SbertParams]):
    """Cosine of sentence embeddings."""

    spec = make_vector_spec("sbert", SbertParams)

    @override
    def model_folder(self) -> Path | None:
        return Path(self.params.model).expanduser()

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the model identified by the sha256 of its files."""
        files = self._files(runtime)
        params = self.params.model_dump(include={"source", "revision", "prompt", "max_length", "dtype", "stored"})
        made = {} if self.params.dtype != INT8 else {INT8: read_manifest(self.int8_folder(runtime.data), KIND).identity}
        return params | made | {"model": {"sha256": files.sha256()}, "unit_length": True}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Make shards of unit vectors (see `make_vector_table`), with a column `truncated` (bool).

        A caption for which the model returns no finite vector is a failed row, with a vector of NaN.
        """
        p, files, shards = self.params, self._files(runtime), Shards(corpus, rows, rows_per_shard)
        encoder = cache(partial(self._encoder, files, runtime))

        def load_model() -> tuple[dict[str, Any], dict[str, Any]]:
            first = corpus.read("text", range(rows.start, min(rows.start + _TRIED, rows.stop)))
            if not np.isfinite(encoder().encode(first).vectors).any():
                where, todo = corpus.caption_ids[rows.start], "Use dtype float32, or another model."
                raise CheckError(f"{_NOT_FINITE} for the first {len(first)} captions", where=where, todo=todo)
            properties = {name: getattr(encoder(), name) for name in ("width", "prompt", "max_length")}
            return properties, {name: getattr(encoder(), name) for name in ("backend", "device", "left_out")}

        def make_shard(part: range) -> pa.Table:
            embeddings = encoder().encode(corpus.read("text", part), runtime.progress.advance)
            broken = np.flatnonzero(~np.isfinite(embeddings.vectors).all(axis=1))
            # A vector with one infinite component would otherwise have a cosine with other vectors.
            embeddings.vectors[broken] = np.nan
            table = make_vector_table(part, embeddings.vectors, p.stored)
            table = table.append_column("truncated", pa.array(embeddings.truncated))
            return mark_failed(table, dict.fromkeys(broken.tolist(), _NOT_FINITE))

        yield model_step(files, load_model)
        yield shards.step(f"sentence embeddings ({files.name})", make_shard, plain=True)
        shards.record_failed(work)
        record_model(files, len(rows), work)
        truncated = sum(int(column.to_numpy().sum()) for column in shards.read_column(work, "truncated"))
        limit = work.facts["max_length"]
        warning = f"{truncated} captions are longer than {limit} tokens: the rest is not seen"
        work.facts |= {
            "unit_length": True,
            "dtype": p.dtype,
            "stored": p.stored,
            "truncated": truncated,
            "warnings": [warning] if truncated else [],
        }

    @override
    def open(self, encoding: OpenEncoding) -> VectorRelevance:
        """Open the vectors. The model is loaded for the first new text only."""
        return VectorRelevance(
            encoding.corpus,
            encoding.rows,
            self.params.pooling,
            read_vectors(encoding.folder, encoding.manifest),
            self._encode_text(encoding.manifest, encoding.runtime),
            read_failed_rows(encoding.folder, encoding.manifest),
        )

    def _files(self, runtime: Runtime) -> ModelFiles:
        """Find the model's files."""
        return find_model(self.params.model, self.params.revision, runtime.progress)

    def int8_folder(self, data: Path) -> Path:
        """Return the folder of the int8 model. Labels with the same model, prompt and limit share it."""
        p = self.params
        digest = hashlib.sha256(json.dumps([p.model, p.revision, p.prompt, p.max_length]).encode()).hexdigest()
        return data / INT8 / f"{Path(p.model).name}-{digest[:8]}"

    def int8_recipe(self, corpus: Corpus, dataset: str, runtime: Runtime) -> Recipe:
        """Return the recipe of the int8 model. A model that another dataset has calibrated is used as it is."""
        p, files, folder = self.params, self._files(runtime), self.int8_folder(runtime.data)
        recorded = None
        if (folder / MANIFEST).exists():
            made = read_manifest(folder, KIND)
            if made.is_current and made.inputs["base"] == files.sha256():
                recorded = made.semantic["sample"]
        other = recorded if recorded and recorded["dataset"] != dataset else None
        return int8_recipe(files, p.prompt, p.max_length, draw_sample(corpus, dataset), corpus, runtime, other)

    def _encoder(self, files: ModelFiles, runtime: Runtime) -> SentenceEncoder:
        """Load the model."""
        from relabel.sources.models.encoder import SentenceEncoder
        from relabel.sources.models.forward import read_openvino

        p = self.params
        quantized = read_openvino(self.int8_folder(runtime.data) / MODEL) if p.dtype == INT8 else None
        return SentenceEncoder(files.folder, p.prompt, p.max_length, p.dtype, runtime, quantized)

    def _encode_text(self, manifest: Manifest, runtime: Runtime) -> Callable[[str], NDArray[np.float32]]:
        """Return an encoder of new texts, which loads the model when needed and checks that it is still the same."""

        @cache
        def encoder() -> SentenceEncoder:
            files = self._files(runtime)
            files.check_unchanged(manifest)
            return self._encoder(files, runtime)

        def encode(text: str) -> NDArray[np.float32]:
            # A terminal can pass surrogates, which no tokenizer accepts.
            typed = text.encode(errors="replace").decode()
            vector: NDArray[np.float32] = encoder().encode([typed]).vectors[0]
            return vector

        return encode
