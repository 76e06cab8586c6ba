"""fuse: a label made of others, by a function that was fitted to human scores (`relabel tune fuse`).

It has no encoding of its own: it is made of its parts'. What they can do it can do: a block of a fuse is an elementwise
function of its parts' blocks. Scores are human scores divided by 5, as the model expects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime, default_data
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding, Source, SourceParams, SourceSpec
from relabel.sources.fuse.model import BOUNDS, Part, model_manifest, read_model, read_parts, unrowed
from relabel.sources.fuse.relevance import FuseRelevance
from relabel.sources.shards import NoTasks
from relabel.store.manifest import Manifest


class FuseParams(SourceParams):
    """Parameters of fuse. Which labels it is made of, and how, is in its model."""

    source: Literal["fuse"] = "fuse"
    pooling: Pooling = Field("refs", description="refs scores the set; paired, max and mean score single references.")
    model: str | None = Field(
        None, description="Folder that `relabel tune fuse` wrote; null for the folder of fetched files, `fuse` in it."
    )
    gate: str | None = Field(
        None, description="Label whose best candidates it scores where neighbours are looked for; null scores all."
    )
    gate_top: int = Field(
        1000, ge=1, le=1_000_000, description="How many candidates of the gate it scores, beside its neighbours."
    )

    @property
    def folder(self) -> Path:
        """Where the model lies."""
        return default_data() / "fuse" if self.model is None else Path(self.model).expanduser()

    @override
    def with_absolute_paths(self) -> Self:
        return self if self.model is None else self.model_copy(update={"model": str(self.folder.absolute())})

    @override
    def with_models(self, data: Path, dataset: str) -> Self:
        return self if self.model is not None else self.model_copy(update={"model": str(data / "fuse")})


class Fuse(Source[FuseParams]):
    """A function of other labels."""

    spec = SourceSpec(
        name="fuse",
        kind="others",
        bounds=BOUNDS,
        symmetric=False,
        version=1,
        params=FuseParams,
    )

    def input_labels(self) -> tuple[str, ...]:
        """Those of its model, then the gate if it is none of them.

        Raises
        ------
        MissingError
            If there is no model.
        CheckError
            If it is none of a fuse.
        """
        gate = () if self.params.gate is None else (self.params.gate,)
        return tuple(dict.fromkeys((*self._parts, *gate)))

    @override
    def gate(self) -> str | None:
        return self.params.gate

    @override
    def model_folder(self) -> Path | None:
        return self.params.folder

    @override
    def is_pairwise(self) -> bool:
        """Raises as `input_labels`."""
        return any(part.pair_by_pair for part in self._parts.values())

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """The model is pinned by its files, wherever they lie."""
        manifest = model_manifest(self.params.folder)
        files = {name: entry.sha256 for name, entry in manifest.files.items()}
        gate = {"gate": self.params.gate, "gate_top": self.params.gate_top} if self.params.gate else {}
        return {"source": self.spec.name, "model": {"fingerprint": manifest.fingerprint, "files": files}} | gate

    @override
    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        """Refuse parts encoded otherwise than for the fit.

        Raises
        ------
        CheckError
            If a part's encoding was made under other parameters than the one that the model was fitted with.
        """
        for label, known in self._parts.items():
            found = unrowed(inputs[label].semantic)
            if found != known.semantic:
                said = {**known.semantic, **found}
                differ = [k for k in said if found.get(k) != known.semantic.get(k)]
                what = f"label {label} is not as the fuse was fitted with: {', '.join(differ)} differ"
                raise CheckError(what, where=str(self.params.folder), todo="Fit it again with `relabel tune fuse`.")

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> NoTasks:
        """Nothing to do: its parts are encoded."""
        return NoTasks()

    @override
    def open(self, encoding: OpenEncoding) -> FuseRelevance:
        failed = [np.empty(0, np.int32), *(part.failed for part in encoding.inputs.values())]
        return FuseRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            parts=encoding.inputs,
            model=read_model(self.params.folder),
            threads=encoding.runtime.threads,
            gate=self.params.gate,
            gate_top=self.params.gate_top,
            failed=np.unique(np.concatenate(failed)),
        )

    @cached_property
    def _parts(self) -> dict[str, Part]:
        return read_parts(self.params.folder)
