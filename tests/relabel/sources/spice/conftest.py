"""Encodings of spice without its parser, from test tuples or from the jar's tuples of COCO's test captions, and SPICE
as explicit loops over sets of words and of synonym sets.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.encodings import encode

from relabel.core.errors import MissingError
from relabel.core.runtime import Runtime
from relabel.corpus import SCHEMA, Corpus
from relabel.sources.base import Encoding
from relabel.sources.shards import Shards
from relabel.sources.spice import Spice, SpiceParams
from relabel.sources.spice.encode import collapsed, encoding_steps
from relabel.sources.spice.parser import ParseFailure
from relabel.sources.spice.relevance import SceneGraphRelevance
from relabel.sources.wordnet import find_base_form, find_meteor_jar, read_wordnet
from relabel.store.workdir import Steps, Work

Tuples = list[list[str]]
KINDS = ("object", "attribute", "relation")
OBJECTS = "man person guy adult dog hound pup street road path car auto automobile bathroom toilet commode lavatory can"
ATTRIBUTES = "big large great red small little tiny bright smart zzz"
RELATIONS = "on be on ride drive with in inside hold carry be behind be"


@pytest.fixture(scope="session")
def meteor_jar() -> Path:
    """Return METEOR's jar, which holds the synonym sets."""
    try:
        return find_meteor_jar()
    except MissingError as error:
        pytest.skip(str(error))


class RecordedParser:
    """Parser with recorded tuples of every text; None marks a text that fails to parse."""

    def __init__(self, tuples: dict[str, Tuples | None]) -> None:
        self.tuples = tuples

    def parse(self, texts: Sequence[str], advance: Callable[[int], None] = lambda _: None) -> list[Any]:
        advance(len(texts))
        parses = [self.tuples[text] for text in texts]
        return [ParseFailure("told so") if each is None else each for each in parses]

    def close(self) -> None:
        pass


def drawn(rng: np.random.Generator, most: int = 9) -> Tuples:
    """Draw the tuples of a caption from words that are synonyms of each other."""
    objects, attributes, relations = OBJECTS.split(), ATTRIBUTES.split(), ["on", "be on", *RELATIONS.split()]
    out: Tuples = []
    for size in rng.integers(1, 4, int(rng.integers(0, most))):
        first, second = (str(w) for w in rng.choice(objects, 2))
        out.append(
            [[first], [first, str(rng.choice(attributes))], [first, second, str(rng.choice(relations))]][size - 1]
        )
    return out


def corpus_of(images: Sequence[Sequence[str]], names: Sequence[Sequence[str]] | None = None) -> Corpus:
    """Return images of captions, all in split `test`."""
    captions = [(m, p, c) for m, image in enumerate(images) for p, c in enumerate(image)]
    columns: dict[str, Any] = {
        "row": range(len(captions)),
        "caption_id": [names[m][p] if names else f"x:{i}" for i, (m, p, _) in enumerate(captions)],
        "image_id": [f"x:{m}" for m, _, _ in captions],
        "image": [m for m, _, _ in captions],
        "split": ["test"] * len(captions),
        "position": [p for _, p, _ in captions],
        "text": [c for _, _, c in captions],
    }
    table = pa.table({n: pa.array(list(v), SCHEMA.field(n).type) for n, v in columns.items()})
    return replace(Corpus.from_table(table), tokenize=lambda corpus: corpus.texts)


def encoded(corpus: Corpus, parser: RecordedParser, folder: Path, runtime: Runtime, **params: Any) -> tuple[Any, Any]:
    """Encode all rows; return the source and the manifest."""

    class Recorded(Spice):
        def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
            shards = Shards(corpus, rows, rows_per_shard)
            return encoding_steps(shards, lambda: corpus.texts, parser, work, runtime.progress)

    source = Recorded(SpiceParams(**params))
    return source, encode(source, corpus, folder, size=4096, runtime=runtime)[1]


@pytest.fixture
def opened(tmp_path: Path, meteor_jar: Path) -> Callable[..., SceneGraphRelevance]:
    """Return `opened(images of tuples, threads=1, **params)`, which opens an encoding of `caption 0`, `caption 1`,
    ...
    """

    def make(images: Sequence[Sequence[Tuples | None]], threads: int = 1, **params: Any) -> SceneGraphRelevance:
        texts, tuples = [], {}
        for image in images:
            texts.append([f"caption {len(tuples) + i}" for i in range(len(image))])
            tuples |= dict(zip(texts[-1], image, strict=True))
        corpus, runtime = corpus_of(texts), Runtime(threads=threads)
        source, manifest = encoded(corpus, RecordedParser(tuples), tmp_path / "encoding", runtime, **params)
        return source.open(Encoding(corpus, tmp_path / "encoding", manifest, runtime))  # type: ignore[no-any-return]

    return make


@pytest.fixture(scope="session")
def coco(
    mirror: Path, meteor_jar: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], SceneGraphRelevance]:
    """Return `coco("raw" or "ptb")`, which opens COCO's test captions with the tuples of SPICE's jar."""
    file = mirror / "spice/coco_test_tuples.parquet"
    if not file.exists():
        pytest.skip(f"{file} does not exist")
    table = pq.read_table(file)
    body = json.loads(gzip.decompress((mirror / "coco/dataset_coco.json.gz").read_bytes()))
    images = [[(str(s["sentid"]), s["raw"]) for s in image["sentences"]] for image in body["images"]]
    corpus = corpus_of([[t for _, t in i] for i in images], [[f"coco:{n}" for n, _ in i] for i in images])
    opened_texts: dict[str, SceneGraphRelevance] = {}

    def make(text: str) -> SceneGraphRelevance:
        if text not in opened_texts:
            tuples = dict(zip(table["caption_id"].to_pylist(), table[f"tuples_{text}"].to_pylist(), strict=True))
            tuples_of_text = {collapsed(t): tuples[int(n)] for i in images for n, t in i}
            folder, runtime = tmp_path_factory.mktemp("spice") / "encoding", Runtime(threads=2)
            source, manifest = encoded(corpus, RecordedParser(tuples_of_text), folder, runtime, text=text)
            opened_texts[text] = source.open(Encoding(corpus, folder, manifest, runtime))
        return opened_texts[text]

    return make


class Concept:
    """Merged words and their synonym sets."""

    def __init__(self, word: str, sets: frozenset[str]) -> None:
        self.words, self.sets = {word}, set(sets)

    def similar(self, other: Concept) -> bool:
        return bool(self.words & other.words or self.sets & other.sets)

    def similarity(self, other: Concept) -> float:
        if self.words & other.words:
            return 1.0
        union = self.sets | other.sets
        return len(self.sets & other.sets) / len(union) if union else 0.0

    def equals(self, other: Concept) -> bool:
        return self.words == other.words and self.sets == other.sets

    def take(self, other: Concept) -> None:
        self.words |= other.words
        self.sets |= other.sets


class Oracle:
    """SPICE by loops; among equally similar nodes, a word joins the later one."""

    def __init__(self, jar: Path) -> None:
        self.table, self.bases = read_wordnet(jar)
        self.known: dict[str, frozenset[str]] = {}

    def sets(self, word: str) -> frozenset[str]:
        if word not in self.known:
            key = word.strip().lower().replace(" ", "_")
            forms = [key, *(self.bases.get(key) or [find_base_form(key, self.table)])]
            self.known[word] = frozenset(s for form in forms for s in self.table.get(form, ()))
        return self.known[word]

    def graph(self, captions: Iterable[Tuples]) -> tuple[list[tuple[Concept, ...]], ...]:
        """Return the merged objects, attributes and relations of the captions."""
        nodes: list[Concept] = []
        attributes: list[tuple[Concept, Concept]] = []
        relations: list[tuple[Concept, Concept, Concept]] = []

        def concept(word: str) -> Concept:
            return Concept(word, self.sets(word))

        def node(word: str) -> Concept:
            new, best, most = concept(word), None, 0.0
            for old in nodes:
                if word in old.words:  # the jar: equality, or similarity 1
                    return old
            for old in nodes:
                if new.similarity(old) > 0 and new.similarity(old) >= most:
                    best, most = old, new.similarity(old)
            if best is None:
                nodes.append(new)
                return new
            best.take(new)
            return best

        def place(new: Concept, among: list[Concept]) -> bool:
            if any(new.equals(old) for old in among):
                return True
            for old in among:
                if new.similar(old):
                    old.take(new)
                    return True
            return False

        for tuples in captions:
            for words in tuples:
                first = node(words[0])
                if len(words) == 2:
                    new = concept(words[1])
                    if not place(new, [a for owner, a in attributes if owner is first]):
                        attributes.append((first, new))
                elif len(words) == 3:
                    second, new = node(words[1]), concept(words[2].removeprefix("be "))
                    if not place(new, [r for s, t, r in relations if s is first and t is second]):
                        relations.append((first, second, new))
        return [(n,) for n in nodes], attributes, relations  # type: ignore[return-value]

    def counts(self, references: Sequence[Tuples], candidate: Tuples) -> list[list[int]]:
        """Return the number of matched, candidate and reference tuples of each kind."""
        out = []
        for ours, theirs in zip(self.graph([candidate]), self.graph(references), strict=True):
            matched = sum(any(all(a.similar(b) for a, b in zip(c, r, strict=True)) for r in theirs) for c in ours)
            out.append([matched, len(ours), len(theirs)])
        return out

    def f1(self, references: Sequence[Tuples], candidate: Tuples) -> float:
        """Return F1 of all tuples."""
        return f1(*(sum(column) for column in zip(*self.counts(references, candidate), strict=True)))


def f1(matched: int, candidate: int, reference: int) -> float:
    """Compute F1 as the jar does."""
    if matched == 0:
        return 0.0
    precision, recall = matched / candidate, matched / reference
    return 2.0 * (precision * recall) / (precision + recall)


@pytest.fixture(scope="session")
def oracle(meteor_jar: Path) -> Oracle:
    return Oracle(meteor_jar)


@pytest.fixture(name="drawn", scope="session")
def _drawn() -> Callable[..., Tuples]:
    return drawn
