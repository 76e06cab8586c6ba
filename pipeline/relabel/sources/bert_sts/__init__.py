"""Source `bert_sts`: a cross-encoder's similarity of two captions, computed coarse to fine (Zhou et al., AAAI 2020).

A cross-encoder reads both captions together, so every pair costs one pass through it. A cheap label of vectors, the
gate, therefore scores all pairs first. A pair with a score of at least 0.8 is refined by the cross-encoder; all others
have relevance 0. The released code of Ladder Loss does the same. The paper says "larger than" and does not define the
relevance of other pairs. Both orders of a pair are averaged, which the paper does not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding, Paths, Source, SourceParams, SourceSpec
from relabel.sources.bert_sts.relevance import Below, BertStsRelevance, Gate, Orders, Output
from relabel.sources.bert_sts.token_pairs import Texts
from relabel.sources.cosine import ComputeType
from relabel.sources.models.files import ModelFiles, find_model
from relabel.sources.models.tasks import model_step, record_model
from relabel.sources.shards import Shards
from relabel.store.manifest import MANIFEST, Manifest, read_parts
from relabel.store.workdir import Steps, Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.scorer import PairScorer


TUNED = "tuned"
"""Name of the model that `relabel tune bert_sts` makes."""


class BertStsParams(SourceParams):
    """Parameters of bert_sts. `max_pairs` changes no score and enters no fingerprint."""

    paths: ClassVar[Paths] = {"model": {TUNED: None}}
    source: Literal["bert_sts"] = "bert_sts"
    pooling: Pooling = Field("max", description="Pooling of an image's references into one number.")
    model: str = Field(
        TUNED,
        description="A cross-encoder with one label: `tuned` (made by `relabel tune bert_sts`), a folder, or a name on "
        "the hub.",
    )
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for the local copy.")
    gate: str | None = Field(
        "cbow", description="Label of vectors that decides which pairs are refined; null refines all pairs."
    )
    threshold: float = Field(0.8, ge=-1000, le=1000, description="Least score by the gate for a pair to be refined.")
    below: Below = Field("zero", description="Relevance of other pairs: zero, or the gate's score clipped to 0..1.")
    orders: Orders = Field("both", description="both: mean of both orders of a pair; one: the reference first.")
    output: Output | None = Field(
        None, description="Mapping of the model's output: sigmoid or raw; null for the one in its configuration."
    )
    scale: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Divisor of a score, which is then clipped to 0..1; null: 5 for raw outputs, else 1.",
    )
    max_length: int | None = Field(
        None, ge=8, le=1_000_000, description="Tokens a pair is truncated to; null for the model's limit."
    )
    dtype: ComputeType = Field("float32", description="Type of matrix products: float32 or bfloat16.")
    max_pairs: int | None = Field(
        10_000_000,
        ge=1,
        le=10**15,
        description="Refuse to refine more pairs for one artefact; null for no limit.",
    )

    @override
    def tuned_models(self) -> tuple[str, ...]:
        return ("bert_sts",) if self.model == TUNED else ()


class BertSts(Source[BertStsParams]):
    """Cross-encoder behind a gate."""

    spec = SourceSpec(
        name="bert_sts",
        kind="pairs",
        bounds=(0.0, 1.0),
        symmetric=True,
        params=BertStsParams,
        refused_poolings={"refs": "a cross-encoder reads two captions, not a set"},
    )

    def __init__(self, params: BertStsParams) -> None:
        super().__init__(params)
        self.spec = replace(self.spec, symmetric=params.orders == "both")

    @override
    def gate(self) -> str | None:
        return self.params.gate

    @override
    def model_folder(self) -> Path | None:
        return Path(self.params.model).expanduser()

    @override
    def input_labels(self) -> tuple[str, ...]:
        return () if self.params.gate is None else (self.params.gate,)

    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        """Raise if the gate is not a label of vectors."""
        for label, manifest in inputs.items():
            if manifest.facts.get("kind") != "vectors":
                message = f"{label} cannot be the gate: it is not a label of vectors"
                raise UsageError(message, todo="Set `gate` to a label of cbow or sbert, or to null.")

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the model identified by the sha256 of its files."""
        params = self.params.model_dump(mode="json", exclude={"pooling", "model", "max_pairs"})
        return params | {"model": {"sha256": self._files(runtime).sha256()}}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Make shards of token ids without special tokens: row int32, ids list<int32>. Pairs are scored when needed."""
        p, files, shards = self.params, self._files(runtime), Shards(corpus, rows, rows_per_shard)
        # torch is loaded by the work, not with the parameters.
        from relabel.sources.bert_sts.scorer import check_labels

        check_labels(files.folder)
        scorer = cache(partial(self._scorer, files, runtime))

        def load_model() -> tuple[dict[str, Any], dict[str, Any]]:
            properties = {"max_length": scorer().limit, "output": scorer().output, "scale": scorer().scale}
            return properties, {name: getattr(scorer(), name) for name in ("backend", "device", "left_out")}

        def make_shard(part: range) -> pa.Table:
            texts = corpus.texts[part.start : part.stop]
            # `dict.fromkeys` keeps the order, so shards have the same bytes in every run.
            distinct = list(dict.fromkeys(texts))
            ids = dict(zip(distinct, scorer().tokenize(distinct), strict=True))
            row = np.arange(part.start, part.stop, dtype=np.int32)
            return pa.table({"row": row, "ids": pa.array([ids[text] for text in texts], pa.list_(pa.int32()))})

        yield model_step(files, load_model)
        yield shards.step(f"token ids ({files.name})", make_shard)
        record_model(files, len(rows), work)
        work.facts |= {"gate": p.gate, "threshold": p.threshold, "below": p.below, "orders": p.orders, "dtype": p.dtype}

    @override
    def open(self, encoding: OpenEncoding) -> BertStsRelevance:
        """Open the token ids. The model is loaded for the first pair that passes the gate."""
        p, column = self.params, read_parts(encoding.folder, encoding.manifest, ["ids"])["ids"].combine_chunks()
        flat, ends = column.flatten().to_numpy(), np.asarray(column.offsets.to_numpy(), np.int64)
        numbers: dict[bytes, int] = {}
        text_of_row = np.empty(len(column), np.int32)
        for i, (a, b) in enumerate(zip(ends[:-1] - ends[0], ends[1:] - ends[0], strict=True)):
            # Captions with equal token ids are one text, whatever their spelling.
            text_of_row[i] = numbers.setdefault(flat[a:b].tobytes(), len(numbers))
        sizes = np.array([len(ids) // 4 for ids in numbers], np.int64)
        texts = Texts(np.frombuffer(b"".join(numbers), np.int32), np.concatenate([[0], np.cumsum(sizes)]))
        coarse = None if p.gate is None else encoding.inputs[p.gate]

        @cache
        def scorer() -> PairScorer:
            files = self._files(encoding.runtime)
            files.check_unchanged(encoding.manifest)
            return self._scorer(files, encoding.runtime)

        return BertStsRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=p.pooling,
            failed=np.empty(0, np.int32) if coarse is None else coarse.failed,
            texts=texts,
            text=text_of_row,
            gate=Gate(p.gate, p.threshold, p.below),
            coarse=coarse,
            orders=p.orders,
            scorer=scorer,
            max_pairs=p.max_pairs,
            runtime=encoding.runtime,
        )

    def _files(self, runtime: Runtime) -> ModelFiles:
        """Find the model's files."""
        if self.params.model != TUNED:
            return find_model(self.params.model, self.params.revision, runtime.progress)
        folder = runtime.data / self.spec.name
        if not (folder / MANIFEST).exists():
            todo = "Run `relabel tune bert_sts`, or set `model` to a folder or a name on the hub."
            raise MissingError("no cross-encoder was tuned here", where=str(folder), todo=todo)
        return find_model(str(folder))

    def _scorer(self, files: ModelFiles, runtime: Runtime) -> PairScorer:
        """Load the model."""
        from relabel.sources.bert_sts.scorer import PairScorer

        p = self.params
        return PairScorer(files.folder, p.max_length, p.output, p.scale, p.dtype, runtime)
