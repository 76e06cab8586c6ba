"""Contract: cider equals explicit loops and pycocoevalcap, as CIDEr-D and as CIDEr, under every pooling. A new text
scores as a reference whose unknown n-grams count in its norm with document frequency 0.

Cases: sets of any size, repeated words on both sides, captions shorter than n, captions without words, and one image
(idf 0 everywhere).

Contract: the source cider writes the documented files and metadata. It names Java where it has no PTB tokens, refuses
an absent df split, and handles one image, captions without words and odd characters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.relabel.sources.cider.oracle import loop_cider
from tests.relabel.sources.encodings import encode, in_images

from relabel import stages
from relabel.core.errors import MissingError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.corpus.tokenizers import lower_split
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.cider.export import Columns
from relabel.sources.cider.ngrams import number_ngrams
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.cider.sets import score_sets
from relabel.sources.relevance import block_of_pairs
from relabel.stages import Session

Open = Callable[..., CiderRelevance]

TANGLED = [
    ["a cat on a mat on a mat", "a cat", "a cat sat on a mat today ok", "", "mat"],
    ["a dog a dog a dog a dog", "a dog on a mat", "the dog", "dog dog", "a cat on a mat"],
    ["two men ride bikes", "two men two men ride two bikes", "men", "a man rides", "two men ride bikes"],
    ["a"],
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    images=st.lists(
        st.lists(st.lists(st.sampled_from("abc"), max_size=7).map(" ".join), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    variant=st.sampled_from(["cider_d", "cider"]),
    n=st.integers(1, 5),
    sigma=st.sampled_from([6.0, 1.5]),
    pooling=st.sampled_from(["set", "mean", "max", "first"]),
)
def test_equals_explicit_loops_on_any_small_corpus(
    opened: Open, images: list[list[str]], variant: str, n: int, sigma: float, pooling: Pooling
) -> None:
    relevance = opened(images, variant=variant, n=n, sigma=sigma)
    documents, count = [[c.split() for c in image] for image in images], len(relevance.corpus)
    sets, rows = relevance.corpus.references(range(len(images))), np.arange(count, dtype=np.int32)
    pairs = block_of_pairs(relevance, sets, rows, pooling)
    # A block, however small, by an index of the captions.
    positions = relevance.set_positions(sets, pooling), relevance.positions(rows)
    block = score_sets(*positions, pooling, relevance.features, relevance.weighting, 1)
    width = sigma if variant == "cider_d" else None
    for m, j in np.ndindex(*block.shape):
        each = [loop_cider([r], relevance.corpus.texts[j].split(), documents, n, width) for r in documents[m]]
        expected = {"first": each[0], "max": max(each)}.get(pooling, sum(each) / len(each))
        assert pairs[m, j] == pytest.approx(expected, abs=1e-12)
        assert block[m, j] == pytest.approx(expected, abs=1e-12)


def test_equals_pycocoevalcap(opened: Open, coco_slice: list[str]) -> None:
    """Check real captions and tangled ones; the references of all images are the documents of both."""
    scorer_module = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    images = [*TANGLED, *in_images([" ".join(lower_split(text)) for text in coco_slice], 5)]
    relevance, rng = opened(images), np.random.default_rng(0)
    sets, worst = relevance.corpus.references(range(len(images))), 0.0
    for _ in range(20):
        chosen = rng.integers(0, len(relevance.corpus), len(images), dtype=np.int32)
        chosen[::4] = relevance.corpus.indptr[:-1][::4]  # own captions
        scorer = scorer_module.CiderScorer(n=4, sigma=6.0)
        for references, row in zip(images, chosen, strict=True):
            scorer += (relevance.corpus.texts[row], references)
        expected = scorer.compute_score()[1]
        assert expected.max() > 0.05
        worst = max(worst, np.abs(relevance.pairs(sets, chosen) - expected).max())
    assert worst < 1e-9


ASKED = [["a cat on a mat", "a cat"], ["a dog on a sofa", "the dog"], ["two men", "two men ride", ""]]


@pytest.mark.parametrize("variant", ["cider_d", "cider"])
@pytest.mark.parametrize(
    "text", ["a cat on a sofa", "an unseen zebra on a mat", "mat mat on on a", "two", "nothing known", "", "x " * 50]
)
def test_a_new_text_equals_explicit_loops(opened: Open, text: str, variant: str) -> None:
    relevance = opened(ASKED, tokenizer="lower_split", variant=variant)
    documents = [[c.split() for c in image] for image in ASKED]
    relevances = relevance.query(text, np.arange(7, dtype=np.int32))
    for j in range(7):
        words = relevance.corpus.texts[j].split()
        expected = loop_cider([text.split()], words, documents, sigma=6.0 if variant == "cider_d" else None)
        assert relevances[j] == pytest.approx(expected, abs=1e-12)


IMAGES = {
    "train": [["a red bus", "the red bus"], ["a blue bus"], ["a red kite"]],
    "test": [
        ["a man on a horse", "man man man"],
        ["two cats 🐈 שלום", "nul\x00 byte", "cats", "x", "y", "sixth caption"],
    ],
}


CAPTIONS = [
    Caption(f"x:{split}{m}-{p}", f"x:{split}{m}", split, text)
    for split, images in IMAGES.items()
    for m, texts in enumerate(images)
    for p, text in enumerate(texts)
]


def encoded(out: Path, rows: range = range(4, 12), tokens: list[str] | None = None, **params: Any) -> Any:
    """Encode the captions of test, or other rows, in shards of two; return the relevance and the manifest."""
    corpus = replace(Corpus.from_captions(CAPTIONS), tokenize=lambda corpus: tokens or corpus.texts)
    return encode(Cider(CiderParams(**params)), corpus, out, rows, 2, Runtime(threads=2))


def test_shards_hold_every_row_and_spell_its_ngrams(tmp_path: Path) -> None:
    _, manifest = encoded(tmp_path / "e", n=2)
    assert manifest.parts == [f"part-{i:05d}-of-00004.parquet" for i in range(4)]
    texts = pq.read_table(tmp_path / "e" / "vocabulary.parquet")["ngram"].to_pylist()
    shards = [pq.read_table(tmp_path / "e" / name) for name in manifest.parts]
    assert [row for s in shards for row in s["row"].to_pylist()] == list(range(4, 12))
    row = shards[0].slice(0, 1).to_pylist()[0]
    ngram_counts = {texts[i]: c for i, c in zip(row["ngrams"], row["counts"], strict=True)}
    expected = {"a": 2, "man": 1, "on": 1, "horse": 1, "a man": 1, "man on": 1, "on a": 1, "a horse": 1}
    assert (row["row"], row["words"], ngram_counts) == (4, 5, expected)
    assert {"🐈", "שלום", "nul\x00 byte"} <= set(texts)


@pytest.mark.parametrize(
    ("df", "documents", "expected"),
    [
        ("encoded", 2, {"a": 1, "man": 1, "cats": 1, "red": None, "sixth": 0}),
        ("test", 2, {"a": 1, "man": 1, "cats": 1, "red": None, "sixth": 0}),
        ("train", 3, {"a": 3, "man": 0, "cats": 0, "red": 2, "bus": 2, "sixth": 0}),
        ("corpus", 5, {"a": 4, "man": 1, "cats": 1, "red": 2, "bus": 2, "sixth": 0}),
    ],
)
def test_document_frequencies(tmp_path: Path, df: str, documents: int, expected: dict[str, int | None]) -> None:
    """Check that the first five captions of an image are one document, and that an n-gram in no document has df 0."""
    _, manifest = encoded(tmp_path / "e", df=df)
    table = pq.read_table(tmp_path / "e" / "vocabulary.parquet")
    assert table["id"].to_pylist() == list(range(table.num_rows))
    frequencies = dict(zip(table["ngram"].to_pylist(), table["df"].to_pylist(), strict=True))
    assert (manifest.metadata["documents"], manifest.warnings) == (documents, [])
    assert {word: frequencies.get(word) for word in expected} == expected


def test_captions_without_words_are_counted(tmp_path: Path) -> None:
    tokens = ["", "a b", "c", "a", "b", "a", "", "c", "d", "e", "f", "g"]
    relevance, manifest = encoded(tmp_path / "e", range(12), tokens)
    assert manifest.warnings == ["2 captions have no words under this tokenizer: relevance 0"]
    assert relevance.block(relevance.corpus.references(range(5)), np.array([0, 6], np.int32)).max() == 0


def test_ptb_without_java_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_java() -> None:
        raise MissingError("no Java", hint="use lower_split")

    monkeypatch.setattr("relabel.core.java.find_java", without_java)
    bare = Corpus.from_captions(CAPTIONS)
    with pytest.raises(MissingError, match=r"no Java.*lower_split"):
        encode(Cider(CiderParams()), bare, tmp_path / "e")
    encode(Cider(CiderParams(tokenizer="lower_split")), bare, tmp_path / "e")


TEXTS = ["b a b a b", "", "a", "a b c", "naïve 猫 🐈 \u200fשלום", "nul\x00byte nul", "b a", "c c c c c c"]


def test_every_ngram_has_one_id_and_ids_ascend_by_order_prefix_and_last_word() -> None:
    ngrams = number_ngrams(TEXTS, str.split, 4)
    texts = ngrams.vocabulary.texts().to_pylist()
    split = [text.split() for text in TEXTS]
    assert set(texts) == {" ".join(w[i : i + k]) for w in split for k in range(1, 5) for i in range(len(w) - k + 1)}
    assert len(set(texts)) == len(texts) == len(ngrams.vocabulary)
    words = texts[: ngrams.vocabulary.starts[1]]
    assert words == sorted(words, key=str.encode)
    for order in range(1, 4):
        ids = range(ngrams.vocabulary.starts[order], ngrams.vocabulary.starts[order + 1])
        keys = [(int(ngrams.vocabulary.prefix[i]), int(ngrams.vocabulary.last[i])) for i in ids]
        assert keys == sorted(set(keys))
        assert [texts[i] for i in ids] == [f"{texts[p]} {texts[w]}" for p, w in keys]
        assert all(len(texts[i].split()) == order + 1 for i in ids)


@pytest.mark.parametrize("label", ["cider", "cider_plain"])
def test_columns_of_a_lookup_are_shared_by_images_and_frequent_ones_are_counted(
    label: str, small_project: Session
) -> None:
    """That their entries give the scores is checked where lookups are read."""
    relevance: Any = stages.open_label(small_project, label, "all")
    features, weighting, image = relevance.features, relevance.weighting, relevance.corpus.image
    owners: dict[tuple[int, int], list[int]] = {}
    for caption in range(len(image)):
        for e in range(features.indptr[caption], features.indptr[caption + 1]):
            for level in range(1, int(features.counts[e] if weighting.clip else 1) + 1):
                owners.setdefault((features.ids[e], level), []).append(image[caption])
    shared = [len(held) for (gram, _), held in owners.items() if len(set(held)) > 1 and weighting.idf[gram] > 0]
    columns = Columns.of(features, weighting, image)
    assert columns.count == len(shared)
    assert columns.frequent == sum(count >= 0.06 * len(image) for count in shared) > 0
