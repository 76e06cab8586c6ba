"""Relevance of texts that are not part of a corpus, given as strings of reference sets and candidates.

The texts are converted to a small corpus and scored by the same code as captions. Reference sets and other candidates
are in different splits, so candidates are not counted in document frequencies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from relabel.core.numeric.csr import indptr_of
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.sources.base import Source
from relabel.sources.encoding import encoding_recipe, open_encoding
from relabel.store.artefact import build
from relabel.store.files import temporary_folder
from relabel.store.manifest import Manifest, version_of
from relabel.store.workdir import Work, make_step

REFERENCE_SPLIT, CANDIDATE_SPLIT = "train", "val"
"""Splits of the temporary corpus. Reference sets have the first rows."""
_Sources = Mapping[str, Source[Any]]
_Encoded = tuple[Manifest, bool]
"""Manifest of an encoding of texts, and whether this call built it."""
_ROWS_PER_SHARD = 5_000  # a killed run loses at most the work of one shard


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores of pairs of a reference set and a candidate, and the cost of computing them.

    `scores`: (P,) float64 in the range of the source; NaN if a text could not be encoded.
    `captions`: number of encoded texts; a text in several sets counts once per set.
    `seconds`: wall time of encoding and scoring, including loading models. For cached encodings, the time of the
        original computation is added.
    `bytes`: size of the encoding, of its components and of its gate.
    """

    scores: Scores
    captions: int
    seconds: float
    bytes: int


@dataclass(frozen=True, eq=False)
class TextCorpus:
    """Pairs of texts as rows of a corpus.

    `corpus`: one image per distinct reference set, then one per distinct candidate that is not a reference.
    `references`: reference set of each of P pairs.
    `candidates`: (P,) int32; row of each pair's candidate, or -1 for an empty candidate.
    """

    corpus: Corpus
    references: References
    candidates: Rows

    @classmethod
    def of(cls, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> TextCorpus:
        """Create the corpus. Equal sets are stored once, and a candidate that is also a reference shares its row."""
        sets: dict[tuple[str, ...], int] = {}
        set_of = np.array([sets.setdefault(tuple(texts), len(sets)) for texts in references], np.int64)
        # Messages name the first pair with a set.
        first = np.unique(set_of, return_index=True)[1].tolist()
        captions = [
            Caption(f"set:{m}:{k}", f"set:{m}", REFERENCE_SPLIT, text, f"pair {first[m] + 1}, reference {k + 1}")
            for texts, m in sets.items()
            for k, text in enumerate(texts)
        ]
        row_of: dict[str, int] = {}
        for row, caption in enumerate(captions):
            row_of.setdefault(caption.text, row)
        for p, text in enumerate(candidates):
            if text.strip() and text not in row_of:
                row_of[text] = len(captions)
                name = f"text:{len(captions)}"
                captions.append(Caption(name, name, CANDIDATE_SPLIT, text, f"pair {p + 1}, candidate"))
        indptr = indptr_of([len(texts) for texts in sets])
        each_set = References(indptr, np.arange(indptr[-1], dtype=np.int32))
        # Images are numbered in their sort order, so the corpus keeps the rows assigned above.
        corpus = Corpus.from_captions(captions)
        rows = np.array([row_of.get(text, -1) for text in candidates], np.int32)
        return cls(corpus, each_set.take(set_of), rows)


def with_tokenizer(corpus: Corpus, runtime: Runtime) -> Corpus:
    """Return the corpus with a PTB tokenizer. Its Java program is kept if the runtime keeps programs."""
    from relabel.corpus.tokenizers import ptb_filter, tokenize

    run = None if runtime.kept is None else runtime.keep("ptb", ptb_filter)
    return replace(corpus, tokenize=lambda corpus: tokenize(corpus.texts, run))


def score_texts(
    source: Source[Any],
    references: Sequence[Sequence[str]],
    candidates: Sequence[str],
    runtime: Runtime,
    parts: _Sources = MappingProxyType({}),
    *,
    pooling: Pooling | None = None,
    folder: Path | None = None,
    label: str = "label",
) -> TextScores:
    """Score each of P candidates against its own reference set. Empty candidates get the minimum of the source.

    Document frequencies that are not fixed (`Source.with_documents`) count each distinct reference set as one document,
    with its first five captions. Candidates are not counted.

    `references`: P non-empty reference sets. `candidates`: P candidates. `parts`: sources of the components and gates
    of `source`, and of their components, by label. `pooling`: by default that of the source. `folder`: keeps the
    encodings, one folder per label, for later calls with the same texts and parameters. By default, encodings are
    temporary.
    `label`: name of the encoding of `source` in `folder`. The components have their own labels.
    """
    sources, started = {**parts, label: source}, time.perf_counter()
    for component in sources.values():
        component.require("query")
    texts = TextCorpus.of(references, candidates)
    corpus = with_tokenizer(texts.corpus, runtime)
    with temporary_folder() if folder is None else nullcontext(folder) as place:
        encoded: dict[str, _Encoded] = {}
        _encode(label, corpus, place, runtime, sources, encoded)

        def find(part: str) -> tuple[Path, Manifest]:
            return place / part, encoded[part][0]

        relevance = open_encoding(label, sources.__getitem__, find, corpus, runtime, {})
        scores, index = np.full(len(candidates), source.spec.bounds[0]), np.flatnonzero(texts.candidates >= 0)
        scores[index] = relevance.pairs(texts.references.take(index), texts.candidates[index], pooling)
        seconds = time.perf_counter() - started
        # Add the time of encodings from earlier calls, so the cost of a label does not depend on the cache.
        seconds += sum(manifest.provenance["seconds"] for manifest, built in encoded.values() if not built)
        size = sum(entry.bytes for manifest, _ in encoded.values() for entry in manifest.files.values())
    return TextScores(scores, len(corpus), seconds, size)


def fingerprint_texts(
    references: Sequence[Sequence[str]],
    candidates: Sequence[str],
    sources: _Sources,
    runtime: Runtime,
) -> dict[str, Any]:
    """Return, for each label, everything except the texts that can change their scores."""
    corpus = TextCorpus.of(references, candidates).corpus
    return {
        label: source.fingerprint_params(corpus, range(len(corpus)), runtime)
        | {"version": version_of("encoding", source.spec.name)}
        for label, source in sources.items()
    }


def _encode(
    label: str, corpus: Corpus, folder: Path, runtime: Runtime, sources: _Sources, encoded: dict[str, _Encoded]
) -> Manifest:
    """Encode all texts with a label, after its components. All encodings are added to `encoded`."""
    # Two labels may share a component.
    if label in encoded:
        return encoded[label][0]
    source, rows = sources[label], range(len(corpus))
    parts = {part: _encode(part, corpus, folder, runtime, sources, encoded) for part in source.input_labels()}
    source.check_inputs(parts)
    config = source.fingerprint_params(corpus, rows, runtime)

    def fill(work: Work) -> None:
        work.metadata |= {"rows": [rows.start, rows.stop], "label": source.spec.name, "kind": source.spec.kind}
        # Only the tasks count documents, because `fuse` compares the parameters in the manifests of its components.
        counted = source.with_documents(corpus, corpus.images([REFERENCE_SPLIT]))
        for step in counted.steps(corpus, rows, _ROWS_PER_SHARD, work, runtime):
            make_step(step, work, runtime.progress)

    identities = {part: manifest.identity for part, manifest in parts.items()}
    recipe = encoding_recipe(label, source, corpus, identities, lambda: config, fill)
    encoded[label] = build(folder / label, recipe, runtime.progress)
    return encoded[label][0]
