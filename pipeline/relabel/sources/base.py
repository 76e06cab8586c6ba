"""Contract of a source: a way of measuring the relevance of captions to the reference sets of images.

A source consists of four classes in one folder:

- `SourceParams`: the parameters a user sets in `params.yaml`;
- `Source`: its properties (`SourceSpec`), the parameters that enter a fingerprint, and the work to be done;
- `Tasks`, normally a subclass of `relabel.sources.shards.ShardTasks`: the encoding of captions, shard by shard;
- `Relevance` (`relabel.sources.relevance`): an opened encoding, which scores any reference sets and captions.

Scores are r(i, j), how well caption j (the candidate) describes the content of reference set i. Rows of a matrix are
reference sets (images), columns are captions.

Adding a source
---------------
1. Create the folder `relabel/sources/NAME/` with the four classes.
2. Add one line to `SOURCES` in `relabel/sources/__init__.py`, and the folder to the import contract in
   `pyproject.toml`.
3. Add a label to `params.yaml`, an entry to `dvc.yaml` and a folder of tests.

Required methods of a `Source` are `fingerprint_params`, `tasks` and `open`. Required methods of a `Relevance` are
`pairs` and `query`. Every other capability is a method with a default, so callers never test which source they hold.
Override these methods to add a capability:

- finding exact neighbours: `Relevance.finder`, or set `SourceSpec.neighbours_blocker` to the reason why not;
- scoring blocks faster than pair by pair: `Relevance.block`, `Relevance.rounded_block`, `Relevance.block_scorer`;
- exporting lookups: `Relevance.write_lookup`, or override `Source.lookup_blocker`;
- searching with faiss: `Source.index_blocker`, `Relevance.unit_vectors`;
- building on other labels: `Source.input_labels`, `Source.check_inputs`;
- reading tokens from the corpus: `Source.tokenizer`;
- needing several captions per image: `Source.single_caption_note`;
- estimating costs in a dry run without captions: `Source.typical_cost`.

Examples
--------
A minimal source is the Jaccard similarity of two sets of words:

>>> from typing import Literal
>>> import numpy as np
>>> import pyarrow as pa
>>> from relabel.core.runtime import Runtime
>>> from relabel.core.types import Pooling
>>> from relabel.sources.base import Source
>>> from relabel.sources.spec import SourceParams, SourceSpec
>>> from relabel.sources.relevance import Relevance, pool
>>> from relabel.sources.shards import ShardTasks
>>> from relabel.sources.texts import score_texts
>>> from relabel.store.manifest import read_parts

Its parameters, with a default for each:

>>> class JaccardParams(SourceParams):
...     source: Literal["jaccard"] = "jaccard"
...     pooling: Pooling = "max"

Its encoding, one row per caption:

>>> class JaccardTasks(ShardTasks):
...     title = "sets of words"
...
...     def make_shard(self, work, rows, advance):
...         words = [sorted(set(self.corpus.texts[row].split())) for row in rows]
...         return pa.table({"row": pa.array(rows, pa.int32()), "words": words})

Its relevance, which scores pairs of a reference set and a caption:

>>> class JaccardRelevance(Relevance):
...     def __init__(self, encoding, words, pooling):
...         self.corpus, self.rows = encoding.corpus, encoding.rows
...         self.words, self.pooling = words, pooling
...
...     def pairs(self, references, captions, pooling=None):
...         candidates = np.repeat(self.positions(captions), np.diff(references.indptr))
...         both = zip(self.positions(references.rows), candidates)
...         scores = np.array([jaccard(self.words[i], self.words[j]) for i, j in both])
...         return pool(scores, references.indptr, pooling or self.pooling)
...
...     def query(self, text, captions):
...         return np.array([jaccard(set(text.split()), self.words[j]) for j in self.positions(captions)])
...
>>> def jaccard(a, b):
...     return len(a & b) / len(a | b)

The source itself:

>>> class Jaccard(Source[JaccardParams]):
...     spec = SourceSpec("jaccard", kind="pairs", bounds=(0, 1), symmetric=True, version=1, params=JaccardParams)
...
...     def fingerprint_params(self, corpus, rows, runtime):
...         return {"source": "jaccard"}
...
...     def tasks(self, corpus, rows, rows_per_shard, runtime):
...         return JaccardTasks(corpus, rows, rows_per_shard)
...
...     def open(self, encoding):
...         column = read_parts(encoding.folder, encoding.manifest, ["words"])["words"]
...         return JaccardRelevance(encoding, [set(words) for words in column.to_pylist()], self.params.pooling)
...
>>> source = Jaccard(JaccardParams())
>>> score_texts(source, [["a dog runs", "a dog"]], ["a dog sleeps"], Runtime()).scores.round(2)
array([0.67])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.sources.spec import SourceParams, SourceSpec
from relabel.sources.typical_cost import TypicalCost
from relabel.store.manifest import Manifest
from relabel.store.tasks import Tasks
from relabel.store.workdir import Work

P = TypeVar("P", bound=SourceParams)


@dataclass(frozen=True)
class OpenEncoding:
    """An encoding on disk, verified against its manifest, as `Source.open` receives it.

    Attributes
    ----------
    corpus : Corpus
    folder : Path
    manifest : Manifest
    runtime : Runtime
    inputs : mapping of str to Relevance
        By label, the opened encodings of all labels in `Source.input_labels`, for the same rows.
    """

    corpus: Corpus
    folder: Path
    manifest: Manifest
    runtime: Runtime
    inputs: Mapping[str, Relevance] = field(default_factory=dict)

    @property
    def rows(self) -> range:
        """Corpus rows that are encoded."""
        return range(*self.manifest.facts["rows"])


class Source(ABC, Generic[P]):
    """A way of measuring relevance, with its parameters.

    Subclasses implement `fingerprint_params`, `tasks` and `open`, and override the methods of the capabilities they
    have. The module docstring lists the capabilities and shows a minimal source.

    Parameters
    ----------
    params : SourceParams

    Attributes
    ----------
    spec : SourceSpec
        Set on the class, and on an instance whose parameters change a property.

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
        """Raise if the source does not support a pooling.

        Raises
        ------
        UsageError
            With the reason and the supported poolings.

        Examples
        --------
        >>> from relabel.sources.sbert import Sbert, SbertParams
        >>> Sbert(SbertParams()).check_pooling("refs")
        Traceback (most recent call last):
        ...
        relabel.core.errors.UsageError: sbert has no pooling 'refs': a cosine compares two captions...
        """
        if pooling in self.spec.refused_poolings:
            message = f"{self.spec.name} has no pooling {pooling!r}: {self.spec.refused_poolings[pooling]}"
            raise UsageError(message, todo=f"Use one of {', '.join(self.spec.poolings)}.")

    def tokenizer(self) -> str | None:
        """Return the name of the tokenizer whose tokens the source reads from the corpus (`ptb`), or None."""
        return None

    def typical_cost(self) -> TypicalCost | None:
        """Return the cost per caption that was measured on COCO; None if these parameters were not measured."""
        return None

    def input_labels(self) -> tuple[str, ...]:
        """Return the labels that the source is made of or gated by. They are encoded first and opened with it."""
        return ()

    def gate(self) -> str | None:
        """Return the label that decides which pairs are scored; None if all pairs are."""
        return None

    def without_gate(self) -> Source[P] | None:
        """Return the same source without its gate; None if it has no gate or depends on it."""
        return None

    def is_pairwise(self) -> bool:
        """Return True if the source scores pair by pair, or is made of a label that does."""
        return self.spec.pairwise

    def compares_image_vectors(self) -> bool:
        """Return True if the source compares a vector of the image itself, not only the image's captions."""
        return False

    def single_caption_note(self) -> str | None:
        """Return the consequence of having one caption per image; None if the source needs no more."""
        return None

    def query_blocker(self) -> str | None:
        """Return the reason why a new text cannot be scored against captions; None if it can."""
        return None

    def with_documents(self, split: str) -> Source[P]:
        """Return the source with its document frequencies taken from one split; itself if it has none."""
        return self

    def for_scoring(self) -> Source[P]:
        """Return the source without files of its encoding that relevance does not read; itself if it has none."""
        return self

    def index_blocker(self) -> str | None:
        """Return the reason why faiss cannot search the encoding; None if it can."""
        return f"faiss searches vectors, and {self.spec.name} has none"

    def lookup_blocker(self) -> str | None:
        """Return the reason why a lookup cannot hold the source; None if it can."""
        return "it scores pair by pair" if self.is_pairwise() else None

    def lookup_fingerprint_params(self, dtype: str) -> dict[str, Any]:
        """Return the parameters of the export that change the source's arrays in a lookup."""
        return {}

    def write_lookup(
        self, folder: Path, manifest: Manifest, opened: Callable[[], Relevance], semantic: Mapping[str, Any], work: Work
    ) -> LookupArrays:
        """Write the source's arrays of a lookup.

        Override this method to copy files without opening the encoding; otherwise override `Relevance.write_lookup`.

        Parameters
        ----------
        folder : Path
            Folder of the encoding.
        manifest : Manifest
            Manifest of the encoding; its files are verified.
        opened : callable
            Opens the encoding.
        semantic : mapping
            Semantic parameters of the lookup, with those of `lookup_fingerprint_params`.
        work : Work
            Work folder of the lookup.
        """
        return opened().write_lookup(work)

    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        """Raise if the source cannot be made of these encodings of its `input_labels`.

        Parameters
        ----------
        inputs : mapping of str to Manifest
            Manifests of the encodings, by label.
        """

    def model_folder(self) -> Path | None:
        """Return the folder that the parameter `model` names, if the source has one. It need not exist."""
        return None

    @abstractmethod
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return everything except the corpus that can change the encoding.

        Include parameters, the revision of a model, and the sha256 of every file that is read. Leave out `pooling`
        unless the encoding depends on it. The values must be JSON-able, and computing them must be cheap compared with
        encoding.

        Raises
        ------
        MissingError
            If a file or model is missing, with the command that gets it.
        """

    @abstractmethod
    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> Tasks:
        """Divide the encoding of some rows into tasks, one per shard (see `relabel.sources.shards`).

        The call itself must be cheap. Models and tables are loaded by the first task that needs them, and are kept.
        The bytes of a shard must not depend on other shards, so a batch never crosses a shard.

        A row that cannot be encoded fails alone: its shard gives the reason in the column `failed`, the manifest
        counts it, and the next run makes that shard again. Raise an error only if every row would fail.

        Parameters
        ----------
        corpus : Corpus
        rows : range
            Corpus rows to encode.
        rows_per_shard : int
        runtime : Runtime
            Threads, memory, device and data folder; none of them may change the bytes.
        """

    @abstractmethod
    def open(self, encoding: OpenEncoding) -> Relevance:
        """Open an encoding that the tasks wrote. Load models only when a method needs them."""
