"""Source `fuse`: a combination of other labels by a function fitted to human scores (`relabel tune fuse`).

A fuse does not have its own encoding. It reads the encodings of its parts, the labels that it combines. A block of a
fuse is an elementwise function of the blocks of its parts. Relevance is the predicted human score, 0 to 5, divided by
5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime, default_data
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import Encoding, Paths, Source, SourceParams, SourceSpec
from relabel.sources.fuse.model import Part, model_manifest, read_model, without_rows
from relabel.sources.fuse.relevance import FuseRelevance
from relabel.store.manifest import Manifest
from relabel_train.scoring.fuse import BOUNDS


class FuseParams(SourceParams):
    """Parameters of fuse. The labels to combine are stored in the model."""

    paths: ClassVar[Paths] = {"model": {None: "fuse"}}
    source: Literal["fuse"] = "fuse"
    pooling: Pooling = Field(
        "set", description="set scores all references together; first, max and mean score single references."
    )
    model: str | None = Field(
        None, description="Folder written by `relabel tune fuse`; null for the folder `fuse` in the data folder."
    )
    gate: str | None = Field(
        None,
        description="Label that selects 1,000 candidates (or k, if greater) for neighbour search; null scores all "
        "captions.",
    )


class Fuse(Source[FuseParams]):
    """Learned combination of other labels."""

    spec = SourceSpec(name="fuse", kind="others", bounds=BOUNDS, symmetric=False, params=FuseParams)

    def input_labels(self) -> tuple[str, ...]:
        """Return the labels that the model combines, and the gate."""
        # The gate may be one of the parts, so duplicates are removed.
        gate = () if self.params.gate is None else (self.params.gate,)
        return tuple(dict.fromkeys((*self._parts, *gate)))

    @override
    def gate(self) -> str | None:
        return self.params.gate

    @override
    def model_folder(self) -> Path:
        return default_data() / "fuse" if self.params.model is None else Path(self.params.model).expanduser()

    @override
    def is_pairwise(self) -> bool:
        """Return whether a part scores pair by pair. Raises as `input_labels` does."""
        return any(part.pair_by_pair for part in self._parts.values())

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the fingerprint of the model, the hashes of its files, and the gate."""
        # Without the path of the model: a copy in another folder gives the same relevance.
        manifest = model_manifest(self.model_folder())
        files = {name: entry.sha256 for name, entry in manifest.files.items()}
        gate = {"gate": self.params.gate} if self.params.gate else {}
        return {"source": self.spec.name, "model": {"fingerprint": manifest.fingerprint, "files": files}} | gate

    @override
    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        """Check that the parts are encoded with the same parameters as in the fit."""
        for label, part in self._parts.items():
            current, fitted = without_rows(inputs[label].config), part.config
            if current != fitted:
                differing = [key for key in {**fitted, **current} if current.get(key) != fitted.get(key)]
                message = f"label {label} has other parameters than in the fit of the fuse: {', '.join(differing)}"
                hint = "Fit it again with `relabel tune fuse`."
                raise CheckError(message, where=str(self.model_folder()), hint=hint)

    @override
    def open(self, encoding: Encoding) -> FuseRelevance:
        # A row without an encoding in any part has failed.
        failed = [np.empty(0, np.int32), *(part.failed for part in encoding.inputs.values())]
        return FuseRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            parts=encoding.inputs,
            model=read_model(self.model_folder()),
            gate=self.params.gate,
            failed=np.unique(np.concatenate(failed)),
        )

    @cached_property
    def _parts(self) -> dict[str, Part]:
        """Parts of the model by label."""
        return read_model(self.model_folder()).parts
