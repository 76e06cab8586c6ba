"""The contract of a source. A new source is one new folder with a `Source`, named in `sources/__init__.py`.

A source has parameters (`SourceParams`) and properties (`SourceSpec`), turns the captions of a corpus into an encoding
(`Source.tasks`), and opens an encoding as a `Relevance`, which answers r for any captions. Relevance reads: how well
does caption j (the candidate) describe what reference set i describes? Rows are reference sets (images), columns are
captions. Every capability that only some sources have is a method with a default, so that no caller needs to know which
source it holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import Field

from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Scores
from relabel.corpus import Corpus
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.manifest import Manifest
from relabel.store.tasks import Tasks
from relabel.store.workdir import Work

Kind = Literal["vectors", "features", "pairs", "others", "baseline"]


class SourceParams(Parameters):
    """Parameters every source has; each source adds its own."""

    source: str
    pooling: Pooling = Field(description="How the references of an image become one number.")

    def with_absolute_paths(self) -> Self:
        """Return the same parameters for a process in another folder: paths made absolute."""
        return self

    def with_models(self, data: Path, dataset: str) -> Self:
        """Return the same parameters with the folder of a model in place of its name.

        Parameters
        ----------
        data : Path
            Folder of fetched and tuned files.
        dataset : str
            Dataset whose models are taken, where each dataset has its own.
        """
        return self

    def tuned_models(self) -> tuple[str, ...]:
        """Return the models it takes that are made here, each by the NAME of `relabel tune NAME`."""
        return ()


P = TypeVar("P", bound=SourceParams)


@dataclass(frozen=True)
class SourceSpec:
    """Properties of a source.

    Attributes
    ----------
    name : str
        Its name in `params.yaml`.
    kind : Kind
        See ARCHITECTURE.md, "The kinds of source".
    bounds : (float, float)
        Least and largest relevance.
    symmetric : bool
        Whether r(a, b) = r(b, a) for single captions.
    version : int
        Version of the encoding's files: goes up when the same captions and parameters come to give other bytes.
    params : type of SourceParams
    refused_poolings : mapping of Pooling to str
        Poolings that make no sense for it, with the reason.
    neighbours_blocker : str or None
        Why it cannot find neighbours; None if it can.
    sample_sizes : (int, int) or None
        Captions of the two samples that a dry run encodes to predict sizes; None if these depend on the pairs.
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
        """Whether every pair has a cost of its own, so that there is no block of any captions."""
        return self.kind == "pairs"

    @property
    def fast(self) -> bool:
        """Whether any captions can be scored at once, so that it can pick the candidates of a slower source."""
        return self.kind in ("vectors", "features")

    @property
    def baseline(self) -> bool:
        """Whether it knows image ids alone, and so cannot score sentences."""
        return self.kind == "baseline"

    @property
    def poolings(self) -> tuple[Pooling, ...]:
        """The poolings that make sense for it."""
        every: tuple[Pooling, ...] = ("paired", "max", "mean", "refs")
        return tuple(pooling for pooling in every if pooling not in self.refused_poolings)


@dataclass(frozen=True)
class OpenEncoding:
    """An encoding to open; its files are already verified against the manifest.

    Attributes
    ----------
    corpus : Corpus
    folder : Path
    manifest : Manifest
    runtime : Runtime
    inputs : mapping of str to Relevance
        By label, the opened encodings of all that `Source.input_labels` names, for the same rows.
    """

    corpus: Corpus
    folder: Path
    manifest: Manifest
    runtime: Runtime
    inputs: Mapping[str, Relevance] = field(default_factory=dict)

    @property
    def rows(self) -> range:
        """The encoded corpus rows."""
        return range(*self.manifest.facts["rows"])


class Source(ABC, Generic[P]):
    """One way of measuring relevance.

    Attributes
    ----------
    spec : SourceSpec
        Of the class; of an instance, where its parameters change a property.
    params : SourceParams
    """

    spec: SourceSpec

    def __init__(self, params: P) -> None:
        self.params = params
        self.check_pooling(params.pooling)

    def check_pooling(self, pooling: Pooling) -> None:
        """Refuse a pooling that makes no sense here.

        Raises
        ------
        UsageError
            With the reason and the poolings that do.
        """
        if pooling in self.spec.refused_poolings:
            what = f"{self.spec.name} has no pooling {pooling!r}: {self.spec.refused_poolings[pooling]}"
            raise UsageError(what, todo=f"Use one of {', '.join(self.spec.poolings)}.")

    def tokenizer(self) -> str | None:
        """Name of the tokenizer whose tokens it reads from the corpus (`ptb`), or None."""
        return None

    def input_labels(self) -> tuple[str, ...]:
        """Name the labels that it is made of or gated by: they are encoded first, and opened with it."""
        return ()

    def gate(self) -> str | None:
        """Name the label that decides which pairs are scored; None if all are."""
        return None

    def without_gate(self) -> Source[P] | None:
        """Return the same source without its gate; None if it has none, or cannot do without."""
        return None

    def is_pairwise(self) -> bool:
        """Whether it scores pair by pair, and so has no block of any captions; or is made of a label that does."""
        return self.spec.pairwise

    def compares_image_vectors(self) -> bool:
        """Whether it compares a vector of the image itself, and not only the image's captions."""
        return False

    def query_blocker(self) -> str | None:
        """Return the reason why a new text cannot be scored against captions; None if it can."""
        return None

    def with_documents(self, split: str) -> Source[P]:
        """Return the same source, its document frequencies taken from one split; itself if it has none."""
        return self

    def score_texts(
        self,
        references: Sequence[Sequence[str]],
        candidates: Sequence[str],
        runtime: Runtime,
        parts: Mapping[str, Source[Any]] = MappingProxyType({}),
        pooling: Pooling | None = None,
    ) -> Scores:
        """Score each of P candidates against its own reference set, all of them texts of no corpus: (P,) float64.

        Parameters and errors are those of `relabel.sources.texts.score_texts`.
        """
        from relabel.sources.texts import score_texts

        return score_texts(self, references, candidates, runtime, parts, pooling=pooling).scores

    def index_blocker(self) -> str | None:
        """Return the reason why faiss cannot search its encoding; None if it can."""
        return f"faiss searches vectors, and {self.spec.name} has none"

    def lookup_blocker(self) -> str | None:
        """Return the reason why no lookup can answer for it; None if one can."""
        return "it scores pair by pair" if self.is_pairwise() else None

    def lookup_fingerprint_params(self, dtype: str) -> dict[str, Any]:
        """Return which of the export's parameters change its arrays in a lookup."""
        return {}

    def write_lookup(
        self, folder: Path, manifest: Manifest, opened: Callable[[], Relevance], semantic: Mapping[str, Any], work: Work
    ) -> LookupArrays:
        """Write its arrays of a lookup.

        Parameters
        ----------
        folder, manifest
            Of the encoding, verified.
        opened : callable
            Opens the encoding; called only where its files alone do not do.
        semantic : mapping
            Parameters of the lookup; see `lookup_fingerprint_params`.
        work : Work
        """
        return opened().write_lookup(work)

    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        """Refuse the encodings of `input_labels()`, by label, if this source cannot be made of them (CheckError)."""

    def model_folder(self) -> Path | None:
        """Return the folder that `model` names, if the source has a model of its own; it need not exist."""
        return None

    @abstractmethod
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return all but the corpus that can change an encoding: parameters, model revision, sha256 of files used.

        `pooling` is left out where the encoding does not depend on it. JSON-able, cheap next to encoding.

        Raises
        ------
        MissingError
            If an asset is not there, with the command that gets it.
        """

    @abstractmethod
    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> Tasks:
        """Cut the encoding of the given rows into tasks: a shard is one (see relabel.sources.shards).

        Batches never cross a shard. Cheap: models and tables are loaded with the first task that needs them, and kept.

        A row that the source cannot encode fails alone: its shard says why in a column `failed`, the manifest counts
        it, and the next run makes that shard again. The run fails only where every row would.
        """

    @abstractmethod
    def open(self, encoding: OpenEncoding) -> Relevance:
        """Open an encoding that the tasks wrote."""
