"""Parameters and properties of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from relabel.core.parameters import Parameters
from relabel.core.types import Pooling

Kind = Literal["vectors", "features", "pairs", "others", "baseline"]


class SourceParams(Parameters):
    """Parameters that every source has. Each source adds its own and gives `source` and `pooling` a default.

    A parameter that accepts a file, or the name of a model made by `relabel tune`, also needs the methods below.
    """

    source: str
    pooling: Pooling = Field(description="Pooling of an image's references into one number.")

    def with_absolute_paths(self) -> Self:
        """Return the same parameters with absolute paths, for a worker process that runs in another folder."""
        return self

    def with_models(self, data: Path, dataset: str) -> Self:
        """Return the same parameters with the name of a model replaced by its folder.

        Parameters
        ----------
        data : Path
            Folder of fetched files and tuned models.
        dataset : str
            Dataset whose models are used, where each dataset has its own.
        """
        return self

    def tuned_models(self) -> tuple[str, ...]:
        """Return the tuned models that these parameters use, each by the NAME of `relabel tune NAME`."""
        return ()


@dataclass(frozen=True)
class SourceSpec:
    """Properties of a source.

    Attributes
    ----------
    name : str
        Name of the source in `params.yaml`.
    kind : Kind
        Kind of encoding. "vectors" are unit vectors compared by their cosine, "features" are sparse rows that score
        whole blocks, and "pairs" are scored one by one. "others" is a function of other labels, and "baseline" needs
        image ids only.
    bounds : (float, float)
        Least and largest relevance.
    symmetric : bool
        True if r(a, b) = r(b, a) for single captions.
    version : int
        Version of the encoding's files. Increase it when the same captions and parameters give other bytes.
    params : type of SourceParams
    refused_poolings : mapping of Pooling to str
        Poolings that the source does not support, with the reason.
    neighbours_blocker : str or None
        Reason why the source cannot find neighbours; None if it can.
    sample_sizes : (int, int) or None
        Numbers of captions in the two samples that a dry run encodes to predict sizes. None if the sizes depend on the
        pairs.

    Examples
    --------
    >>> from relabel.sources.same_image import SameImage
    >>> spec = SameImage.spec
    >>> spec.kind, spec.bounds, spec.poolings
    ('baseline', (0.0, 1.0), ('paired', 'max', 'mean', 'refs'))
    """

    name: str
    kind: Kind
    bounds: tuple[float, float]
    symmetric: bool
    version: int
    params: type[SourceParams]
    refused_poolings: Mapping[Pooling, str] = field(default_factory=dict)
    neighbours_blocker: str | None = None
    sample_sizes: tuple[int, int] | None = None

    @property
    def pairwise(self) -> bool:
        """True if every pair has its own cost, so blocks of arbitrary captions are too expensive."""
        return self.kind == "pairs"

    @property
    def fast(self) -> bool:
        """True if blocks of arbitrary captions are cheap, so the source can pick candidates for a slower one."""
        return self.kind in ("vectors", "features")

    @property
    def baseline(self) -> bool:
        """True if the source knows image ids only and therefore cannot score sentences."""
        return self.kind == "baseline"

    @property
    def poolings(self) -> tuple[Pooling, ...]:
        """Poolings that the source supports."""
        every: tuple[Pooling, ...] = ("paired", "max", "mean", "refs")
        return tuple(pooling for pooling in every if pooling not in self.refused_poolings)
