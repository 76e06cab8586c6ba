"""Source `sbert`: cosine of sentence embeddings, with any sentence-transformers model (Reimers, Gurevych, EMNLP 2019).

BCLS, S-NDCG and ITM_CLS compute labels in this way, with the maximum over the five captions of an image. These papers
do not name their checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import DerivedModel, Encoding, Paths, SourceParams
from relabel.sources.cosine import (
    ComputeType,
    VectorRelevance,
    VectorSource,
    make_vector_spec,
    make_vector_table,
    read_vectors,
)
from relabel.sources.models.files import DEFAULT_MODEL, ModelFiles, find_model
from relabel.sources.models.reading import MULTILINGUAL, Reading
from relabel.sources.sbert.quantize import INT8, KIND, WEIGHTS, int8_recipe
from relabel.sources.shards import Shards, mark_failed, read_failed_rows
from relabel.store.artefact import Recipe
from relabel.store.manifest import read_manifest
from relabel.store.workdir import Steps, Work

if TYPE_CHECKING:
    from relabel.sources.models.base import Encoder


_NOT_FINITE, _UNREADABLE = "the model gives no finite vector", "the model knows no word of it"
TUNED = "tuned"
"""Name of the model from `relabel tune sbert`."""


def _encode_text(encoder: Encoder, text: str) -> NDArray[np.float32]:
    """Return the unit vector of a new text, (D,). Raises UsageError if the model cannot read the text."""
    vectors, reading = encoder.encode([text])
    if reading.unreadable[0]:
        hint = f"Set `model` to one for this language, such as {MULTILINGUAL}."
        raise UsageError(f"{_UNREADABLE}: {text!r}", hint=hint)
    vector: NDArray[np.float32] = vectors[0]
    return vector


class SbertParams(SourceParams):
    """Parameters of sbert. Vectors always have unit length."""

    paths: ClassVar[Paths] = {"model": {TUNED: "sbert-cxc"}}
    source: Literal["sbert"] = "sbert"
    pooling: Pooling = Field("max", description="Pooling of the scores of an image's references to one score.")
    model: str = Field(DEFAULT_MODEL, description="Folder, name on the hub, or `tuned` (from `relabel tune sbert`).")
    prompt: str | None = Field(None, description="Text before every caption; null for the model's default prompt.")
    max_length: int | None = Field(
        None, ge=3, le=1_000_000, description="Maximum number of tokens; null for the model's limit."
    )
    dtype: ComputeType | Literal["int8"] = Field("float32", description="dtype of matrix products; int8 is for CPUs.")


class Sbert(VectorSource[SbertParams]):
    """Cosine of sentence embeddings."""

    spec = make_vector_spec("sbert", SbertParams)

    @override
    def model_folder(self) -> Path | None:
        return Path(self.params.model).expanduser()

    @override
    def derived_model(self, data: Path) -> DerivedModel | None:
        """Return the int8 model for dtype int8. It is calibrated on the dataset that needs it first."""
        if self.params.dtype != INT8:
            return None
        return DerivedModel(INT8, self.int8_folder(data), lambda _, *inputs: self.int8_recipe(*inputs))

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the sha256 of the model's files."""
        params = self.params.model_dump(include={"source", "prompt", "max_length", "dtype"})
        if self.params.dtype == INT8:
            # Two calibrations have the same fingerprint, but different weights.
            params[INT8] = read_manifest(self.int8_folder(runtime.data), KIND).files[WEIGHTS].sha256
        return params | {"model": {"sha256": self._files(runtime).sha256()}, "unit_length": True}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the step of shards of unit vectors (see `make_vector_table`), with the columns of `Reading`.

        Captions that the model cannot read, and captions without a finite vector, are failed rows with NaN vectors.
        """
        files, shards = self._files(runtime), Shards(corpus, rows, rows_per_shard)
        # Loaded first, to report an invalid model before any work.
        encoder = self._encoder(files, runtime)
        about = files.name, str(work.metadata.get("label", self.spec.name)), encoder.max_length, len(rows)
        sample = encoder.read(shards.sample())[1]
        if sample.unreadable.all():
            hint = f"Set `model` to one for this language, such as {MULTILINGUAL}; see docs/sources/sbert.md."
            raise UsageError(f"{files.name} knows no word of the captions", hint=hint)
        work.warn(*sample.warnings(*about))

        def make_shard(part: range) -> pa.Table:
            vectors, reading = encoder.encode(corpus.read("text", part), runtime.progress.advance)
            reasons = dict.fromkeys(np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist(), _NOT_FINITE)
            reasons |= dict.fromkeys(np.flatnonzero(reading.unreadable).tolist(), _UNREADABLE)
            # Otherwise a vector with one infinite component could have finite cosines.
            vectors[list(reasons)] = np.nan
            table = make_vector_table(part, vectors)
            for name, column in reading._asdict().items():
                table = table.append_column(name, pa.array(column))
            return mark_failed(table, reasons)

        yield shards.step(f"sentence embeddings ({files.name})", make_shard, plain=True)
        shards.record_failed(work)
        columns = (shards.read_column(work, name) for name in Reading._fields)
        reading = Reading._make(np.concatenate([part.to_numpy() for part in parts]) for parts in columns)
        work.metadata |= {name: getattr(encoder, name) for name in ("width", "prompt", "max_length")}
        work.metadata |= {name: int(getattr(reading, name).sum()) for name in ("tokens", "unknown", "truncated")}
        work.metadata |= {"model": files.name, "warnings": [*reading.warnings(*about)]}
        work.provenance |= {name: getattr(encoder, name) for name in ("backend", "device", "dtype", "left_out")}
        work.provenance["model"] = files.record()

    @override
    def open(self, encoding: Encoding) -> VectorRelevance:
        """Open the vectors. The model is only loaded for new texts."""
        runtime = encoding.runtime
        encoder = cache(lambda: self._encoder(self._files(runtime).check_unchanged(encoding.manifest), runtime))
        return VectorRelevance(
            encoding.corpus,
            encoding.rows,
            self.params.pooling,
            read_vectors(encoding.folder, encoding.manifest),
            lambda text: _encode_text(encoder(), text),
            failed=read_failed_rows(encoding.folder, encoding.manifest),
        )

    def _files(self, runtime: Runtime) -> ModelFiles:
        """Find the files of the model."""
        model = self.params.model
        return runtime.keep((model,), partial(find_model, model, runtime.progress))

    def int8_folder(self, data: Path) -> Path:
        """Return the folder of the int8 model. Labels with the same model, prompt and limit share it."""
        p = self.params
        digest = hashlib.sha256(json.dumps([p.model, p.prompt, p.max_length]).encode()).hexdigest()
        return data / INT8 / f"{Path(p.model).name}-{digest[:8]}"

    def int8_recipe(self, corpus: Corpus, dataset: str, runtime: Runtime) -> Recipe:
        """Return the recipe of the int8 model. A model calibrated on another dataset is reused."""
        return int8_recipe(self._files(runtime), self.params.prompt, self.params.max_length, corpus, dataset, runtime)

    def _encoder(self, files: ModelFiles, runtime: Runtime) -> Encoder:
        """Load the model."""
        p = self.params

        def load() -> Encoder:
            from relabel.sources.models.embeddings import SavedEncoder, load_encoder

            if p.dtype == INT8:
                return SavedEncoder(self.int8_folder(runtime.data), INT8, runtime)
            return load_encoder(files, p.prompt, p.max_length, p.dtype, runtime)

        return runtime.keep(p.model_dump_json(), load, files.name)
