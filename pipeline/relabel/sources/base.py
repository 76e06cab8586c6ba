"""Base classes of sources: parameters, properties and the steps of an encoding.

`relabel.sources` describes the classes and methods of a source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import Field

from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.artefact import Recipe
from relabel.store.manifest import Manifest
from relabel.store.workdir import Steps, Work

Kind = Literal["vectors", "features", "pairs", "others", "baseline"]
Capability = Literal["neighbours", "index", "lookup", "query"]
"""Finding neighbours, searching with faiss, exporting lookups, and scoring captions against a new text."""
Paths = Mapping[str, Mapping[str | None, str | None]]


class SourceParams(Parameters):
    """Base class of source parameters. Each source adds its own and defines defaults for `source` and `pooling`.

    Attributes
    ----------
    paths : mapping of str to mapping
        Parameters that may be a path, with their special values. A special value maps to a folder in the data folder,
        or to None if it does not stand for a folder. `{dataset}` is replaced by the name of the dataset.
        `Config.source` makes paths absolute.
    """

    paths: ClassVar[Paths] = {}

    source: str
    pooling: Pooling = Field(description="Pooling of the scores of an image's references to one score.")

    def completed(self, params_of: Callable[[str], SourceParams]) -> Self:
        """Fill in defaults that depend on other labels. `params_of`: returns the parameters of a label."""
        return self

    def tuned_models(self) -> tuple[str, ...]:
        """Return the tuned models that the parameters use, as names of `relabel tune NAME`."""
        return ()

    def fetched(self) -> tuple[str, ...]:
        """Return the datasets of `relabel fetch` that the parameters need. Without them, a run leaves the label out."""
        return ()


@dataclass(frozen=True)
class SourceSpec:
    """Properties of a source.

    Attributes
    ----------
    name : str
        Name of the source in `params.yaml`.
    kind : Kind
        Kind of encoding. "vectors" are unit vectors compared by cosine, "features" are sparse rows that score whole
        blocks, and "pairs" are scored one by one. "others" combines other labels or reads given scores, and "baseline"
        only needs image ids.
    bounds : (float, float)
        Minimum and maximum relevance.
    symmetric : bool
        True if r(a, b) = r(b, a) for single captions.
    params : type of SourceParams
    refused_poolings : mapping of Pooling to str
        Unsupported poolings, with the reason.
    refused : mapping of Capability to str
        Unsupported capabilities, with the reason (see `Source.supports`).
    image_vectors : bool
        True if the source compares vectors of images, not only of their captions.

    Examples
    --------
    >>> from relabel.sources.same_image import SameImage
    >>> spec = SameImage.spec
    >>> spec.kind, spec.bounds, spec.poolings
    ('baseline', (0.0, 1.0), ('first', 'max', 'mean', 'set'))
    """

    name: str
    kind: Kind
    bounds: tuple[float, float]
    symmetric: bool
    params: type[SourceParams]
    refused_poolings: Mapping[Pooling, str] = field(default_factory=dict)
    refused: Mapping[Capability, str] = field(default_factory=dict)
    image_vectors: bool = False

    @property
    def fast(self) -> bool:
        """True if blocks of arbitrary captions are cheap, so the source can select candidates for a slower one."""
        return self.kind in ("vectors", "features")

    @property
    def poolings(self) -> tuple[Pooling, ...]:
        """Poolings that the source supports."""
        every: tuple[Pooling, ...] = ("first", "max", "mean", "set")
        return tuple(pooling for pooling in every if pooling not in self.refused_poolings)


@dataclass(frozen=True)
class DerivedModel:
    """A model that the first encoding creates in the data folder, shared by all labels with the same parameters.

    Attributes
    ----------
    name : str
        Name of the model in the list of a run.
    folder : Path
        Folder of the model. It need not exist.
    recipe : callable
        Takes the sources of the label's components and gates by label, the corpus, the name of its dataset, and the
        runtime.
    judged : bool
        True if the model is selected by human scores of COCO's captions.
    """

    name: str
    folder: Path
    recipe: Callable[[Mapping[str, Source[Any]], Corpus, str, Runtime], Recipe]
    judged: bool = False


P = TypeVar("P", bound=SourceParams)


@dataclass(frozen=True)
class Encoding:
    """An encoding on disk, verified against its manifest, as `Source.open` receives it.

    Attributes
    ----------
    corpus : Corpus
    folder : Path
    manifest : Manifest
    runtime : Runtime
    inputs : mapping of str to Relevance
        Opened encodings of all labels in `Source.input_labels`, for the same rows.
    bounds : mapping of str to (float, float)
        Minimum and maximum relevance of each label in `inputs`.
    """

    corpus: Corpus
    folder: Path
    manifest: Manifest
    runtime: Runtime
    inputs: Mapping[str, Relevance] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def rows(self) -> range:
        """Encoded corpus rows."""
        return range(*self.manifest.metadata["rows"])


class Source(ABC, Generic[P]):
    """Base class of sources: a way of measuring relevance, with its parameters.

    Subclasses implement `fingerprint_params`, `steps` and `open`, and override the methods of their capabilities.
    `relabel.sources` lists the capabilities.

    Parameters
    ----------
    params : SourceParams

    Attributes
    ----------
    spec : SourceSpec
        Defined by the class, and replaced on an instance if its parameters change a property.

    Raises
    ------
    UsageError
        If the source does not support ``params.pooling``.
    """

    spec: SourceSpec

    def __init__(self, params: P) -> None:
        self.params = params
        self.check_pooling(params.pooling)

    def check_pooling(self, pooling: Pooling) -> None:
        """Raise a UsageError with the reason and the supported poolings if a pooling is not supported.

        Examples
        --------
        >>> from relabel.sources.sbert import Sbert, SbertParams
        >>> Sbert(SbertParams()).check_pooling("set")
        Traceback (most recent call last):
        ...
        relabel.core.errors.UsageError: sbert has no pooling 'set': a cosine compares two captions...
        """
        if pooling in self.spec.refused_poolings:
            message = f"{self.spec.name} has no pooling {pooling!r}: {self.spec.refused_poolings[pooling]}"
            raise UsageError(message, hint=f"Use one of {', '.join(self.spec.poolings)}.")

    def tokenizer(self) -> str | None:
        """Return the name of the tokenizer (`ptb`) if the source reads tokens from the corpus, or None."""
        return None

    def input_labels(self) -> tuple[str, ...]:
        """Return the labels that the source combines or uses as a gate. They are encoded and opened before it."""
        return ()

    def gate(self) -> str | None:
        """Return the label that selects the pairs to score, or None if all pairs are scored."""
        return None

    def is_pairwise(self) -> bool:
        """Return True if the source scores pair by pair, or combines a label that does.

        Blocks of arbitrary captions are then too expensive.
        """
        return self.spec.kind == "pairs"

    def supports(self, what: Capability) -> str | None:
        """Return None if the source has a capability, otherwise the reason why it does not."""
        if what == "index" and self.spec.kind != "vectors":
            return f"faiss searches vectors, but {self.spec.name} does not have vectors"
        if what == "lookup" and self.is_pairwise():
            return "it scores pair by pair; use precomputed batches instead"
        return self.spec.refused.get(what)

    def require(self, what: Capability) -> None:
        """Raise UsageError with the reason if the source does not have a capability."""
        if (reason := self.supports(what)) is not None:
            name = "scores of new texts" if what == "query" else what
            raise UsageError(f"{self.spec.name} has no {name}: {reason}", hint="Use a label of another source.")

    def write_lookup(
        self, folder: Path, manifest: Manifest, opened: Callable[[], Relevance], config: Mapping[str, Any], work: Work
    ) -> LookupArrays:
        """Write the arrays of a lookup.

        Override this method to copy files without opening the encoding. Otherwise override `Relevance.write_lookup`.

        Parameters
        ----------
        folder, manifest : Path, Manifest
            Folder and manifest of the encoding. Its files have been verified.
        opened : callable
            Opens the encoding.
        config : mapping
            Parameters of the lookup that can change a value; for vectors, they include `dtype`.
        work : Work
            Work folder of the lookup.
        """
        return opened().write_lookup(work)

    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        """Raise if the source cannot use the encodings of its `input_labels`, given as manifests by label."""

    def with_documents(self, corpus: Corpus, images: range | None = None) -> Self:
        """Return the source with the document frequencies of a corpus, for encoding other corpora.

        Sources that do not use document frequencies, or already have them, return themselves.

        Parameters
        ----------
        corpus : Corpus
        images : range, optional
            Numbers of the images to count; by default, those that the parameters select.

        Raises
        ------
        UsageError
            If the documents are too few to give any text a score.
        """
        return self

    def model_folder(self) -> Path | None:
        """Return the folder of the parameter `model`, if there is one. It need not exist."""
        return None

    def derived_model(self, data: Path) -> DerivedModel | None:
        """Return the model that the first encoding creates for this source, if any. `data`: the data folder."""
        return None

    @abstractmethod
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return everything except the corpus that can change the encoding.

        Include parameters, the revision of a model, and the sha256 of every file that is read. Leave out `pooling`
        unless the encoding depends on it. The values must be serializable as JSON, and computing them must be cheap
        compared with encoding.

        Raises
        ------
        MissingError
            If a file or model is missing. The error names the command that fetches it.
        """

    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the steps of encoding a range of rows, and then set the metadata (see `relabel.store.workdir`).

        The default implementation yields no steps. Typically, a source has one task per shard (see
        `relabel.sources.shards`). The first task that needs a model or table loads it and keeps it. The bytes of a
        shard must not depend on other shards, so a batch must not cross shards. All processes that work on the encoding
        request the steps.

        A row that cannot be encoded does not affect other rows. Its shard has the reason in the column `failed`, and
        the manifest counts it. `--retry-failed` encodes again. Raise an error only if every row would fail. Pass
        warnings for the user to `Work.warn`, if possible before the step that they concern.

        Parameters
        ----------
        corpus : Corpus
        rows : range
            Corpus rows to encode.
        rows_per_shard : int
        work : Work
            Folder with the files of earlier steps, and metadata to set.
        runtime : Runtime
            Threads, memory, device and data folder. They must not change the bytes.
        """
        yield from ()

    @abstractmethod
    def open(self, encoding: Encoding) -> Relevance:
        """Open a finished encoding. Load models only when a method needs them."""
