"""What a source promises. A new source is one new file with a `Source`, named in `sources/__init__.py`.

A source has parameters (`SourceParams`), turns the captions of a corpus into an encoding (`Source.units`), and opens
an encoding as a `Relevance`, which answers r for any captions. Relevance reads: how well does caption j (the candidate)
describe what reference set i describes? Rows are reference sets (images), columns are captions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from relabel.corpus import Corpus, References
from relabel.errors import UsageError
from relabel.neighbours.base import Finder, Search
from relabel.runtime import Runtime
from relabel.store.manifest import Manifest
from relabel.store.units import Units

Kind = Literal["vectors", "features", "pairs", "others", "baseline"]
Pooling = Literal["paired", "max", "mean", "refs"]
Rows = NDArray[np.int32]
Scores = NDArray[np.float64]


class SourceParams(BaseModel):
    """Parameters every source has; each source adds its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    pooling: Pooling = Field(description="How the references of an image become one number.")

    def anywhere(self) -> SourceParams:
        """Return the same parameters for a process in another folder: paths made absolute."""
        return self


P = TypeVar("P", bound=SourceParams)


class Relevance(ABC):
    """An opened encoding: relevance for any captions of its corpus.

    Attributes
    ----------
    corpus : Corpus
    rows : range
        The corpus rows that are encoded; any other row is an IndexError of the caller's.
    pooling : Pooling
        The default where a call gives none.
    failed : (F,) int32
        The corpus rows that could not be encoded, ascending. Relevance is NaN wherever one takes part, as the caption
        or among the references that count; a failed row is nobody's neighbour and has none.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    failed: Rows = np.empty(0, np.int32)

    @abstractmethod
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of a reference set and a caption.

        Parameters
        ----------
        references : References
            P sets of corpus rows, none of them empty.
        captions : (P,) int32
            Corpus rows of the candidates.
        pooling : Pooling, optional

        Returns
        -------
        (P,) float64, in the source's range.
        """

    @abstractmethod
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score every one of M reference sets against every one of N captions.

        Returns
        -------
        (M, N) float64, equal to `pairs` on each pair.
        """

    def sets(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of two reference sets: of images, say.

        Every caption of the other set against the reference set, pooled over them as over references: `refs` by their
        mean. A source with a measure of two sets of its own says so.

        Parameters
        ----------
        references, others : References
            P sets each, none of them empty.
        pooling : Pooling, optional

        Returns
        -------
        (P,) float64
        """
        how = pooling or self.pooling
        if how == "paired":
            others = References.single(others.rows[others.indptr[:-1]])
        sizes = others.indptr[1:] - others.indptr[:-1]
        scores = self.pairs(references.take(np.repeat(np.arange(len(sizes)), sizes)), others.rows, how)
        return pool(scores, others.indptr, "mean" if how == "refs" else how)

    @abstractmethod
    def query(self, text: str, captions: Rows) -> Scores:
        """Score N captions against one new text, which stands as the only reference.

        Parameters
        ----------
        text : str
            As a person types it.
        captions : (N,) int32
            Corpus rows.

        Returns
        -------
        (N,) float64
        """

    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """Search for exact neighbours.

        Raises
        ------
        UsageError
            If this kind of source has none: it scores pair by pair, or knows image ids alone.
        """
        raise UsageError(
            f"{type(self).__name__} has no exact neighbours", todo="Use a source of vectors or features: sbert, cider."
        )


NO_PARTS: Mapping[str, Relevance] = MappingProxyType({})
"""What most sources are made of: no other label."""


class Source(ABC, Generic[P]):
    """One way of measuring relevance.

    Class attributes
    ----------------
    name : str
        The field's name for it, as in `params.yaml`.
    kind : Kind
        What it can promise (ARCHITECTURE.md, "The kinds of source").
    bounds : (float, float)
        Least and largest relevance.
    symmetric : bool
        Whether r(a, b) = r(b, a) for single captions.
    version : int
        Of its encoding's files: goes up when the same captions and parameters come to give other bytes.
    refused : dict of Pooling to str
        Poolings that make no sense for it, with the reason.
    no_neighbours : str or None
        Why it cannot find neighbours; None if it can.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    bounds: ClassVar[tuple[float, float]]
    symmetric: ClassVar[bool]
    version: ClassVar[int]
    refused: ClassVar[dict[Pooling, str]] = {}
    no_neighbours: ClassVar[str | None] = None
    params_model: ClassVar[type[SourceParams]]

    def __init__(self, params: P) -> None:
        self.params = params
        self.check_pooling(params.pooling)

    @classmethod
    def check_pooling(cls, pooling: Pooling) -> None:
        """Refuse a pooling that makes no sense here.

        Raises
        ------
        UsageError
            With the reason and the poolings that do.
        """
        if pooling in cls.refused:
            fine = ", ".join(p for p in ("paired", "max", "mean", "refs") if p not in cls.refused)
            raise UsageError(
                f"{cls.name} has no pooling {pooling!r}: {cls.refused[pooling]}", todo=f"Use one of {fine}."
            )

    def tokenizer(self) -> str | None:
        """Name of the tokenizer whose tokens it reads from the corpus (`ptb`), or None."""
        return None

    def parts(self) -> tuple[str, ...]:
        """Name the labels that it is made of or gated by: they are encoded first, and opened with it."""
        return ()

    def pair_by_pair(self) -> bool:
        """Whether it scores pair by pair, and so has no block of any captions; or is made of a label that does."""
        return self.kind == "pairs"

    def no_lookup(self) -> str | None:
        """Say why no lookup can answer for it; None if one can."""
        return "it scores pair by pair" if self.pair_by_pair() else None

    def check_parts(self, parts: Mapping[str, Manifest]) -> None:
        """Refuse the encodings of `parts()`, by label, if this source cannot be made of them (CheckError)."""

    @abstractmethod
    def semantic(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return all but the corpus that can change an encoding: parameters, model revision, sha256 of files used.

        `pooling` is left out where the encoding does not depend on it. JSON-able, cheap next to encoding.

        Raises
        ------
        MissingError
            If an asset is not there, with the command that gets it.
        """

    @abstractmethod
    def units(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> Units:
        """Cut the encoding of the given rows into units: a shard is one (see relabel.sources.shards).

        Batches never cross a shard. Cheap: models and tables are loaded with the first unit that needs them, and kept.

        A row that the source cannot encode fails alone: its shard says why in a column `failed`, the manifest counts
        it, and the next run makes that shard again. The run fails only where every row would.
        """

    @abstractmethod
    def open(
        self,
        corpus: Corpus,
        folder: Path,
        manifest: Manifest,
        runtime: Runtime,
        parts: Mapping[str, Relevance] = NO_PARTS,
    ) -> Relevance:
        """Open an encoding that the units wrote (its files are already verified against the manifest).

        `parts` holds, by label, the opened encodings of all that `parts()` names, for the same rows.
        """


def pool(values: NDArray[np.floating[Any]], indptr: NDArray[np.int64], pooling: Pooling) -> Scores:
    """Reduce one score a reference to one score a set.

    Parameters
    ----------
    values : (indptr[-1], ...) float
        Score of each reference.
    indptr : (P + 1,) int64
        Set p owns ``values[indptr[p]:indptr[p + 1]]``; no set is empty.
    pooling : "paired" (the first reference), "max" or "mean"

    Returns
    -------
    (P, ...) float64
    """
    starts = indptr[:-1]
    sizes = indptr[1:] - starts
    if pooling == "paired":
        return np.asarray(values[starts], np.float64)
    if values.ndim > 1 and len(sizes) and (sizes == sizes[0]).all():  # reduceat along rows is 20 times slower
        sets = values.reshape(len(sizes), int(sizes[0]), *values.shape[1:])
        return np.asarray(sets.max(axis=1) if pooling == "max" else sets.mean(axis=1, dtype=np.float64), np.float64)
    if pooling == "max":
        return np.asarray(np.maximum.reduceat(values, starts, axis=0), np.float64)
    total: Scores = np.add.reduceat(values, starts, axis=0, dtype=np.float64)
    return total / sizes.reshape(-1, *([1] * (values.ndim - 1)))
