"""Source `bert_sts`: similarity of two captions by a cross-encoder, coarse to fine (Zhou et al., AAAI 2020).

A cross-encoder reads both captions together, so every pair needs a forward pass. Therefore, a cheap label with vectors,
the gate, scores all pairs first. Pairs with a score of at least 0.8 by GloVe-CBoW are refined by the cross-encoder; all
others have relevance 0, as in the released code of Ladder Loss. The paper says "larger than" and does not define the
relevance of other pairs. Unlike in the paper, the scores of both orders of a pair are averaged. Thresholds for other
gates are described in `gate`.

A model of images and captions reads an image file instead of the reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.base import Capability, DerivedModel, Encoding, Source, SourceSpec
from relabel.sources.bert_sts.gate import GATE, read_threshold, threshold_recipe
from relabel.sources.bert_sts.pairs import image_files
from relabel.sources.bert_sts.params import TUNED, BertStsParams
from relabel.sources.bert_sts.relevance import BertStsRelevance
from relabel.sources.models.files import ModelFiles, find_model
from relabel.sources.shards import Shards
from relabel.store.artefact import Recipe
from relabel.store.files import input_sha256
from relabel.store.manifest import MANIFEST, Manifest
from relabel.store.workdir import Steps, Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.scorer import PairScorer


_NO_IMAGE = "the model reads an image and a caption, and a new text does not have an image"


class BertSts(Source[BertStsParams]):
    """Cross-encoder behind a gate."""

    spec = SourceSpec(
        name="bert_sts",
        kind="pairs",
        bounds=(0.0, 1.0),
        symmetric=True,
        params=BertStsParams,
        refused_poolings={"set": "a cross-encoder reads two captions, not a set"},
    )

    def __init__(self, params: BertStsParams) -> None:
        super().__init__(params)
        refused: Mapping[Capability, str] = {} if params.images is None else {"query": _NO_IMAGE}
        self.spec = replace(self.spec, symmetric=params.symmetric, refused=refused)

    @override
    def gate(self) -> str | None:
        return self.params.gate

    @override
    def model_folder(self) -> Path | None:
        return Path(self.params.model).expanduser()

    @override
    def input_labels(self) -> tuple[str, ...]:
        return () if self.params.gate is None else (self.params.gate,)

    @override
    def derived_model(self, data: Path) -> DerivedModel | None:
        """Return the threshold of the gate, unless it is a parameter. It is selected on COCO for all datasets."""
        if self.params.gate is None or self.params.threshold is not None:
            return None
        return DerivedModel(
            GATE,
            self.gate_folder(data),
            lambda gate, corpus, _, runtime: self.threshold_recipe(gate, corpus, runtime),
            judged=True,
        )

    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        """Raise if the gate does not have vectors."""
        for label, manifest in inputs.items():
            if manifest.metadata.get("kind") != "vectors":
                message = f"{label} cannot be the gate: it does not have vectors"
                raise UsageError(message, hint="Set `gate` to a label of cbow or sbert, or to null.")

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the sha256 of the model's files."""
        params = self.params.model_dump(mode="json", exclude={"pooling", "model", "images"})
        params["model"] = {"sha256": self._files(runtime).sha256()}
        params["threshold"] = self._threshold(runtime)
        if self.params.images is not None:
            files = image_files(self.params.images, corpus, corpus.images_of(rows))
            params["images"] = hashlib.sha256("".join(map(input_sha256, files)).encode()).hexdigest()
        return params

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Load and check the model. There are no steps, because pairs are scored when needed."""
        files = self._files(runtime)
        scorer = self._scorer(files, runtime)
        work.metadata |= {"model": files.name, "max_length": scorer.limit}
        work.metadata |= {"output": scorer.output}
        work.provenance |= {name: getattr(scorer, name) for name in ("backend", "device", "dtype", "left_out")}
        work.provenance["model"] = files.record()
        work.metadata |= self.params.model_dump(include={"gate", "dtype"})
        work.metadata["threshold"] = self._threshold(runtime)
        if self.params.images is None:
            reading, label = scorer.read(Shards(corpus, rows, rows_per_shard).sample()), work.metadata.get("label")
            work.warn(*reading.warnings(files.name, label or self.spec.name, scorer.limit, len(rows)))
        return iter(())

    @override
    def open(self, encoding: Encoding) -> BertStsRelevance:
        """Open the relevance. The model is loaded for the first pair that passes the gate."""
        coarse = None if self.params.gate is None else encoding.inputs[self.params.gate]
        runtime = encoding.runtime
        return BertStsRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            params=self.params,
            coarse=coarse,
            threshold=encoding.manifest.metadata["threshold"],
            scorer=cache(lambda: self._scorer(self._files(runtime).check_unchanged(encoding.manifest), runtime)),
            runtime=runtime,
            failed=np.empty(0, np.int32) if coarse is None else coarse.failed,
        )

    def _threshold(self, runtime: Runtime) -> float | None:
        """Return the threshold of the parameters, or else the selected one; None without a gate."""
        if self.params.gate is None or self.params.threshold is not None:
            return self.params.threshold
        return read_threshold(self.gate_folder(runtime.data))

    def gate_folder(self, data: Path) -> Path:
        """Return the folder of the selected threshold. Labels that only differ in pooling share it."""
        body = self.params.model_dump_json(exclude={"pooling", "threshold"})
        return data / GATE / f"{self.params.gate}-{hashlib.sha256(body.encode()).hexdigest()[:8]}"

    def threshold_recipe(self, gate: Mapping[str, Source[Any]], corpus: Corpus, runtime: Runtime) -> Recipe:
        """Return the recipe of the threshold. `gate`: sources of the gate and its components by label."""
        ungated = BertSts(self.params.model_copy(update={"gate": None}))
        return threshold_recipe(self.params, ungated, gate, corpus, runtime)

    def _files(self, runtime: Runtime) -> ModelFiles:
        """Find the files of the model."""
        if self.params.model != TUNED:
            return find_model(self.params.model, runtime.progress)
        folder = runtime.data / self.spec.name
        if not (folder / MANIFEST).exists():
            hint = "Run `relabel tune bert_sts`, or set `model` to a folder or a name on the hub."
            raise MissingError("no tuned cross-encoder in this folder", where=str(folder), hint=hint)
        return find_model(str(folder))

    def _scorer(self, files: ModelFiles, runtime: Runtime) -> PairScorer:
        """Load the model."""

        def load() -> PairScorer:
            # Imported here, because parameters are read without torch.
            from relabel.sources.bert_sts.scorer import PairScorer

            return PairScorer(files.folder, self.params, runtime)

        return runtime.keep(self.params.model_dump_json(), load, files.name)
