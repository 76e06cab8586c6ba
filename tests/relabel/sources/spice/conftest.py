"""Opened encodings of spice, from test tuples or from the jar's tuples of COCO's test captions, and SPICE as explicit
loops over sets of words and of synonym sets.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.encodings import corpus_of
from tests.relabel.sources.spice.recorded import open_recorded
from tests.relabel.sources.spice.stand_in import Tuples

from relabel.sources.spice.encode import collapsed
from relabel.sources.spice.relevance import SceneGraphRelevance
from relabel.sources.wordnet import find_base_form, read_wordnet


@pytest.fixture
def opened(tmp_path: Path, meteor_jar: Path) -> Callable[..., SceneGraphRelevance]:
    """Return `opened(images of tuples, threads=1)`, which encodes and opens captions with these tuples."""

    def make(images: Sequence[Sequence[Tuples | None]], threads: int = 1) -> SceneGraphRelevance:
        corpus = corpus_of([[f"{m} {p}" for p in range(len(image))] for m, image in enumerate(images)])
        tuples = dict(zip(corpus.texts, (each for image in images for each in image), strict=True))
        return open_recorded(corpus, tuples.get, tmp_path / "encoding", threads=threads)

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
    images = json.loads(gzip.decompress((mirror / "coco/dataset_coco.json.gz").read_bytes()))["images"]
    number = {s["sentid"]: collapsed(s["raw"]) for image in images for s in image["sentences"]}
    corpus = corpus_of([[s["raw"] for s in image["sentences"]] for image in images])

    @cache
    def make(text: str) -> SceneGraphRelevance:
        texts = (number[i] for i in table["caption_id"].to_pylist())
        tuples = dict(zip(texts, table[f"tuples_{text}"].to_pylist(), strict=True))
        return open_recorded(corpus, tuples.get, tmp_path_factory.mktemp("spice") / "e", threads=2, text=text)

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

    def f1(self, references: Sequence[Tuples], candidate: Tuples) -> float:
        """Return F1 of the tuples of all kinds, computed as the jar does."""
        matched, candidates, of_references = 0, 0, 0
        for ours, theirs in zip(self.graph([candidate]), self.graph(references), strict=True):
            matched += sum(any(all(a.similar(b) for a, b in zip(c, r, strict=True)) for r in theirs) for c in ours)
            candidates, of_references = candidates + len(ours), of_references + len(theirs)
        if matched == 0:
            return 0.0
        precision, recall = matched / candidates, matched / of_references
        return 2.0 * (precision * recall) / (precision + recall)


@pytest.fixture(scope="session")
def oracle(meteor_jar: Path) -> Oracle:
    return Oracle(meteor_jar)
