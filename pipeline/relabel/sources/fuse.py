"""fuse: a label made of others, by a function that was fitted to human scores (`relabel tune fuse`).

It has no encoding of its own: it is made of its parts'. What they can do it can do: a block of a fuse is an elementwise
function of its parts' blocks. Scores are human scores divided by 5, as the model expects them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from relabel.corpus import Corpus
from relabel.errors import CheckError
from relabel.runtime import Runtime, default_data
from relabel.sources.base import NO_PARTS, Kind, Pooling, Relevance, Source, SourceParams
from relabel.sources.fuse_model import BOUNDS, Part, model_manifest, read_model, read_parts, unrowed
from relabel.sources.fuse_relevance import FuseRelevance
from relabel.sources.same_image import NoUnits
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
    gate_top: int = Field(1000, ge=1, description="How many candidates of the gate it scores, beside its neighbours.")

    @property
    def folder(self) -> Path:
        """Where the model lies."""
        return default_data() / "fuse" if self.model is None else Path(self.model).expanduser()

    def anywhere(self) -> FuseParams:
        """See SourceParams.anywhere."""
        return self.model_copy(update={"model": str(self.folder.absolute())})


class Fuse(Source[FuseParams]):
    """A function of other labels."""

    name: ClassVar[str] = "fuse"
    kind: ClassVar[Kind] = "others"
    bounds: ClassVar[tuple[float, float]] = BOUNDS
    symmetric: ClassVar[bool] = False
    version: ClassVar[int] = 1
    params_model: ClassVar[type[SourceParams]] = FuseParams

    def parts(self) -> tuple[str, ...]:
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

    def pair_by_pair(self) -> bool:
        """See Source.pair_by_pair; raises as `parts`."""
        return any(part.pair_by_pair for part in self._parts.values())

    def semantic(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """See Source.semantic. The model is pinned by its files, wherever they lie."""
        manifest = model_manifest(self.params.folder)
        files = {name: entry.sha256 for name, entry in manifest.files.items()}
        gate = {"gate": self.params.gate, "gate_top": self.params.gate_top} if self.params.gate else {}
        return {"source": self.name, "model": {"fingerprint": manifest.fingerprint, "files": files}} | gate

    def check_parts(self, parts: Mapping[str, Manifest]) -> None:
        """See Source.check_parts.

        Raises
        ------
        CheckError
            If a part's encoding was made under other parameters than the one that the model was fitted with.
        """
        for label, known in self._parts.items():
            found = unrowed(parts[label].semantic)
            if found != known.semantic:
                said = {**known.semantic, **found}
                differ = [k for k in said if found.get(k) != known.semantic.get(k)]
                what = f"label {label} is not as the fuse was fitted with: {', '.join(differ)} differ"
                raise CheckError(what, where=str(self.params.folder), todo="Fit it again with `relabel tune fuse`.")

    def units(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> NoUnits:
        """Nothing to do: its parts are encoded."""
        return NoUnits()

    def open(
        self,
        corpus: Corpus,
        folder: Path,
        manifest: Manifest,
        runtime: Runtime,
        parts: Mapping[str, Relevance] = NO_PARTS,
    ) -> FuseRelevance:
        """See Source.open."""
        failed = [np.empty(0, np.int32), *(part.failed for part in parts.values())]
        return FuseRelevance(
            corpus=corpus,
            rows=range(*manifest.facts["rows"]),
            pooling=self.params.pooling,
            parts=parts,
            model=read_model(self.params.folder),
            threads=runtime.threads,
            gate=self.params.gate,
            gate_top=self.params.gate_top,
            failed=np.unique(np.concatenate(failed)),
        )

    @cached_property
    def _parts(self) -> dict[str, Part]:
        return read_parts(self.params.folder)
