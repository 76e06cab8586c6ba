"""Contract: METEOR equals pycocoevalcap's to 1e-12 for any captions, and the jar's to 1e-9 on pairs of COCO, Flickr30K
and CxC. Scoring needs no Java. Pooling, blocks, queries, threads and neighbours agree with pairs.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.encodings import best_by_pairs, corpus_of, encode, find, in_images
from tests.relabel.sources.meteor.fixtures import PROGRAMS, Jar, opened

from relabel.core.errors import UsageError
from relabel.core.java import find_java
from relabel.core.runtime import Runtime
from relabel.core.types import Rows
from relabel.corpus import Corpus, References
from relabel.corpus.tokenizers import tokenize
from relabel.datasets.cxc import human_scores
from relabel.sources.base import Encoding
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.finder import Search
from relabel.sources.meteor import Meteor, MeteorParams, MeteorRelevance
from relabel.sources.meteor import relevance as meteor_relevance
from relabel.sources.relevance import block_of_pairs

ODD = [
    "A dog 😀 runs past the 🇩🇪 flag",
    "كلب أبيض يركض a dog",
    "A dog\x00barks\u2028at the cat",
    "Five o'clock: a man's dog-house, St. Mary's Ave. no. 5, U.S. 3.5m...",
    "a man ||| a woman | a child",
    "dog",
    "the the the the the the the the dog the the the",
    "Call (415) 555-1212 about the café — naïve",
    "A man sees " + " ".join(f"thing{i}" for i in range(990)) + " in the street with a dog.",
]
TOO_LONG = "a dog " * 513
Score = Callable[[list[list[str]], list[str]], list[float]]


@pytest.fixture
def small(fake_java: Callable[[str], Path], meteor_jar: Path, tmp_path: Path) -> MeteorRelevance:
    """Return METEOR of a few captions, encoded by stand-ins for Java, which is gone."""
    fake_java(PROGRAMS.format(trouble=""))
    images = [["a big dog runs", "a dog"], ["a large hound", "", "two dogs run"], ["a cat", TOO_LONG], ["a dog"]]
    relevance = opened([[text.strip() for text in image] for image in images], tmp_path / "meteor")
    fake_java("sys.exit('Java runs')")
    return relevance


def test_poolings_agree_with_single_captions(small: MeteorRelevance) -> None:
    sets, captions = small.corpus.references([0, 1, 3, 1]), np.array([2, 0, 7, 4], np.int32)
    single = {
        (r, c): small.pairs(References.single(np.array([r], np.int32)), np.array([c], np.int32))[0]
        for p, c in enumerate(captions.tolist())
        for r in sets[p].tolist()
    }
    each = [[single[r, c] for r in sets[p].tolist()] for p, c in enumerate(captions.tolist())]
    assert np.unique(np.concatenate(each)).size > 4
    assert single[7, 7] == 1.0
    assert single[3, 0] == 0.0  # a text without words
    pooled = {"set": max, "max": max, "mean": np.mean, "first": lambda scores: scores[0]}
    for how, reduce in pooled.items():
        np.testing.assert_allclose(small.pairs(sets, captions, how), [reduce(s) for s in each], rtol=0, atol=1e-15)  # type: ignore[arg-type, operator]


def test_a_text_that_is_too_long_is_a_failed_row(small: MeteorRelevance) -> None:
    assert small.failed.tolist() == [6]
    scores = small.block(References.single(np.arange(8, dtype=np.int32)), np.arange(8, dtype=np.int32))
    failed = np.arange(8) == 6
    np.testing.assert_array_equal(np.isnan(scores), failed[:, None] | failed)
    assert np.isnan(small.pairs(small.corpus.references([2]), np.array([5], np.int32))).all()


def test_threads_and_memory_of_matches_change_nothing(small: MeteorRelevance, monkeypatch: pytest.MonkeyPatch) -> None:
    from relabel.sources.meteor import align

    rng = np.random.default_rng(0)
    references, captions = rng.integers(0, 8, (2, 500)).astype(np.int32)
    expected = meteor_relevance.score_texts(small.tables, references, captions, 1)
    monkeypatch.setattr(meteor_relevance, "_PAIRS", 7)
    monkeypatch.setattr(align.Buffers.allocate.__func__, "__defaults__", (1,))  # fewer matches than a pair has
    np.testing.assert_array_equal(meteor_relevance.score_texts(small.tables, references, captions, 3), expected)


def test_a_query_equals_its_text_as_a_caption(
    fake_java: Callable[[str], Path], meteor_jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(PROGRAMS.format(trouble=""))
    monkeypatch.setattr("relabel.sources.meteor.tokenize_text", str.strip)
    texts = ["a big dog runs", "a hound on top of a hill", "", "two dogs run", "an automobile on the street"]
    new = ["a large dog running", "cars in the road", "a dog atop a slope", "zzz", ""]
    relevance, both = opened([texts], tmp_path / "one"), opened([texts, new], tmp_path / "both")
    captions = np.array([4, 0, 1, 1, 2, 3], np.int32)
    for row, text in enumerate(new, len(texts)):
        expected = both.pairs(References.single(np.full(6, row, np.int32)), captions)
        np.testing.assert_allclose(relevance.query(text, captions), expected, rtol=0, atol=1e-15)
    assert (relevance.query(new[1], captions) > 0).any()


def test_neighbours_are_the_best_of_the_gate(
    fake_java: Callable[[str], Path], meteor_jar: Path, coco_slice: list[str], tmp_path: Path
) -> None:
    fake_java(PROGRAMS.format(trouble=""))
    corpus = corpus_of(in_images([text.lower().rstrip(". ") for text in coco_slice[:100]], 5))
    gate = encode(Cider(CiderParams(tokenizer="lower_split")), corpus, tmp_path / "gate")[0]
    source, runtime = Meteor(MeteorParams(gate="gate")), Runtime(threads=1)
    assert source.supports("neighbours") is None
    relevance, manifest = encode(Meteor(MeteorParams()), corpus, tmp_path / "meteor")
    rows = np.arange(100, dtype=np.int32)
    search = Search(References.single(rows), rows, rows, 5)
    with pytest.raises(UsageError, match="no exact neighbours"):
        relevance.finder(search, None, runtime)
    gated = source.open(Encoding(corpus, tmp_path / "meteor", manifest, runtime, {"gate": gate}))
    gated = replace(gated, gate_top=10)
    found, scores = find(gated.finder(search, None, runtime), tmp_path / "work")
    for row in range(100):
        near = find(gate.finder(Search(References.single(rows[[row]]), rows[[row]], rows, 10), None, runtime), tmp_path)
        one = Search(References.single(rows[[row]]), rows[[row]], np.sort(near[0][0]), 5)
        expected = best_by_pairs(relevance, one, "set")
        np.testing.assert_array_equal(found[row], expected[0][0])
        np.testing.assert_array_equal(scores[row], expected[1][0])


@pytest.fixture(scope="module")
def meteor(coco_slice: list[str], tmp_path_factory: pytest.TempPathFactory) -> MeteorRelevance:
    images = [*in_images(coco_slice[:200], 5), ODD[:5], [*ODD[5:], "A dog", "A man"]]
    return opened(images, tmp_path_factory.mktemp("a name with ümlaut and space") / "meteor", tokenize)


@pytest.fixture(scope="module")
def original() -> Iterator[Score]:
    """Score tokens by pycocoevalcap's wrapper, which runs the `java` on PATH."""
    from pycocoevalcap.meteor.meteor import Meteor as Wrapper

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(find_java().parent) + os.pathsep + os.environ["PATH"])
        wrapper = Wrapper()

    def score(references: list[list[str]], candidates: list[str]) -> list[float]:
        gts, res = dict(enumerate(references)), {i: [c] for i, c in enumerate(candidates)}
        return wrapper.compute_score(gts, res)[1]  # type: ignore[no-any-return]

    yield score
    wrapper.meteor_p.stdout.close()
    wrapper.meteor_p.stderr.close()


def sample(corpus: Corpus, count: int) -> tuple[References, np.ndarray]:
    """Draw pairs: half of an image's other captions and one of its own, half of an image and any caption."""
    draw = np.random.default_rng(2)
    references, captions = [], []
    for k in range(count):
        image = draw.integers(len(corpus.image_ids))
        rows = np.arange(*corpus.indptr[image : image + 2], dtype=np.int32)
        caption = draw.choice(rows) if k % 2 else draw.integers(len(corpus))
        references.append(rows[rows != caption] if k % 2 else rows[:5])
        captions.append(caption)
    return References.of(references), np.array(captions, np.int32)


@pytest.mark.slow
@pytest.mark.java
def test_equals_pycocoevalcap(meteor: MeteorRelevance, original: Score) -> None:
    tokens = meteor.corpus.tokens
    references, captions = sample(meteor.corpus, 300)
    expected = original([[tokens[r] for r in group] for group in references], [tokens[c] for c in captions])
    scores = meteor.pairs(references, captions)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
    assert len(set(np.round(scores, 6))) > 100  # the sample covers many values
    assert scores.min() >= 0
    assert scores.max() <= 1


@pytest.mark.java
def test_block_and_query_equal_pairs(meteor: MeteorRelevance, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, captions = meteor.corpus, np.array([3, 3, 150, 205, 210], np.int32)
    references = corpus.references([0, 30, 40, 41])
    expected = block_of_pairs(meteor, references, captions, None)
    monkeypatch.setattr("relabel.sources.relevance._BLOCK", 7)
    np.testing.assert_array_equal(meteor.block(references, captions), expected)
    assert meteor.block(references, captions[:0]).shape == (4, 0)
    row = 17
    single = References.single(np.full(5, row, np.int32))
    np.testing.assert_allclose(meteor.query(corpus.texts[row], captions), meteor.pairs(single, captions), atol=1e-15)
    for odd in ("", "...", "😀", "\x00\u2028"):
        assert not meteor.query(odd, captions).any()


def read_images(path: Path, split: str) -> list[dict[str, Any]]:
    images = json.loads(gzip.decompress(path.read_bytes()))["images"]
    return [image for image in images if image["split"] == split]


def drawn_pairs(images: list[dict[str, Any]]) -> tuple[list[Rows], Rows]:
    """Draw pairs of an image and a caption, half of them of this image; two in three keep one reference."""
    rng, count = np.random.default_rng(50), 6000
    image, other = rng.integers(0, len(images), (2, count))
    captions = 5 * np.where(rng.random(count) < 0.5, image, other) + rng.integers(0, 5, count)
    sets = [5 * m + rng.permutation(5)[: 5 if p % 3 else 1] for p, m in enumerate(image)]
    return sets, captions.astype(np.int32)


def judged_pairs(images: list[dict[str, Any]]) -> tuple[list[Rows], Rows]:
    """Return judged pairs of captions, and of an image and a caption."""
    row = {f"coco:{s['sentid']}": 5 * m + p for m, image in enumerate(images) for p, s in enumerate(image["sentences"])}
    first = {f"coco:{image['cocoid']}": 5 * m for m, image in enumerate(images)}
    sts, sits = (human_scores(task, "test") for task in ("sts", "sits"))
    sets = [np.array([row[one]]) for one in sts.left[:4000]] + [first[one] + np.arange(5) for one in sits.right[:4000]]
    return sets, np.array([row[one] for one in (*sts.right[:4000], *sits.left[:4000])], np.int32)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize(
    ("file", "split", "pairs"),
    [
        ("coco/dataset_coco.json.gz", "test", drawn_pairs),
        ("coco/dataset_coco.json.gz", "test", judged_pairs),
        ("flickr30k/dataset_flickr30k.json.gz", "val", drawn_pairs),
    ],
    ids=["coco", "cxc", "flickr30k"],
)
def test_equals_the_jar(file: str, split: str, pairs: Any, mirror: Path, tmp_path: Path) -> None:
    images = [image for image in read_images(mirror / file, split) if len(image["sentences"]) == 5]
    relevance = opened([[s["raw"] for s in image["sentences"]] for image in images], tmp_path / "meteor", tokenize)
    sets, captions = pairs(images)
    sets = [rows[rows != caption].astype(np.int32) for rows, caption in zip(sets, captions.tolist(), strict=True)]
    kept = np.flatnonzero([len(rows) > 0 for rows in sets])
    shards = sorted((tmp_path / "meteor").glob("part-*.parquet"))
    words = [text for shard in shards for text in pq.read_table(shard)["words"].to_pylist()]
    lines = [" ||| ".join([*(words[r] for r in sets[p].tolist()), words[captions[p]]]) for p in kept]
    scores = relevance.pairs(References.of([sets[p] for p in kept]), captions[kept])
    jar = Jar()
    np.testing.assert_allclose(scores, jar.score(lines), rtol=0, atol=1e-9)
    jar.process.kill()
