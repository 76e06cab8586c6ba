"""Contract: cider equals explicit loops and pycocoevalcap, as CIDEr-D and as CIDEr; block, topk and pairs agree bit for
bit. A new text scores as a reference whose unknown n-grams count in its norm with document frequency 0.

Cases: poolings, sets of any size, repeated words on both sides, captions shorter than n, captions without words, one
image (idf 0 everywhere), captions of 2,000 words, and rows that are not encoded.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relabel.corpus import Corpus, References
from relabel.corpus.tokenizers import lower_split
from relabel.sources.cider.relevance import CiderRelevance

Open = Callable[..., CiderRelevance]

TANGLED = [
    ["a cat on a mat on a mat", "a cat", "a cat sat on a mat today ok", "", "mat"],
    ["a dog a dog a dog a dog", "a dog on a mat", "the dog", "dog dog", "a cat on a mat"],
    ["two men ride bikes", "two men two men ride two bikes", "men", "a man rides", "two men ride bikes"],
    ["a"],
]


def everything(relevance: CiderRelevance) -> np.ndarray:
    return np.arange(len(relevance.rows), dtype=np.int32)


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
)
def test_equals_explicit_loops_on_any_small_corpus(
    opened: Open, loop_cider: Callable[..., float], images: list[list[str]], variant: str, n: int, sigma: float
) -> None:
    relevance = opened(images, variant=variant, n=n, sigma=sigma)
    documents = [[c.split() for c in image] for image in images]
    block = relevance.block(relevance.corpus.references(range(len(images))), everything(relevance))
    for m, j in np.ndindex(*block.shape):
        words = relevance.corpus.texts[j].split()
        expected = loop_cider(documents[m], words, documents, n, sigma if variant == "cider_d" else None)
        assert block[m, j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("pooling", ["refs", "mean", "max", "paired"])
@pytest.mark.parametrize("variant", ["cider_d", "cider"])
def test_block_topk_and_pairs_are_bit_identical(opened: Open, pooling: Any, variant: str) -> None:
    rng = np.random.default_rng(5)
    images = [[" ".join(rng.choice(list("abcdefgh"), rng.integers(0, 12))) for _ in range(3)] for _ in range(150)]
    relevance = opened(images, variant=variant)
    sets = relevance.corpus.references(range(150))
    captions = rng.permutation(everything(relevance))[:200].astype(np.int32)
    block = relevance.block(sets, captions, pooling)
    pairs = relevance.pairs(sets.take(np.repeat(np.arange(150), 200)), np.tile(captions, 150), pooling)
    assert np.array_equal(block, pairs.reshape(150, 200))
    rows, scores = relevance.topk(sets, captions, 40, pooling)
    for m in range(150):
        order = np.lexsort((captions, -block[m]))[:40]
        assert np.array_equal(rows[m], captions[order])
        assert np.array_equal(scores[m], block[m][order])


def test_topk_breaks_ties_by_row_and_may_be_shorter_than_k(opened: Open) -> None:
    relevance = opened([["x y", "x y"], ["p q", "p q"], ["x y", "zz"]])
    sets = References.single(np.array([0, 5], np.int32))
    rows, scores = relevance.topk(sets, np.array([5, 4, 3, 1, 0], np.int32), 99)
    assert rows.tolist() == [[0, 1, 4, 3, 5], [5, 0, 1, 3, 4]]
    assert (scores[0, :3] == scores[0, 0]).all()
    assert scores[0, 0] > 0
    assert scores[0, 3:].tolist() == [0, 0]
    assert relevance.topk(sets, np.array([], np.int32), 3)[0].shape == (2, 0)
    assert relevance.topk(sets, np.array([4, 3], np.int32), 1)[0].tolist() == [[4], [3]]


def test_poolings(opened: Open) -> None:
    relevance = opened(TANGLED)
    sets, rows = relevance.corpus.references(range(4)), everything(relevance)
    singles = relevance.block(References.single(rows), rows)
    bounds = sets.indptr
    for m in range(4):
        mine = singles[bounds[m] : bounds[m + 1]]
        assert np.array_equal(relevance.block(sets, rows, "max")[m], mine.max(0))
        assert np.array_equal(relevance.block(sets, rows, "paired")[m], mine[0])
        assert relevance.block(sets, rows, "mean")[m] == pytest.approx(mine.mean(0), abs=1e-12)
    assert np.array_equal(relevance.block(sets, rows, "mean"), relevance.block(sets, rows, "refs"))


def test_a_caption_of_2000_words(opened: Open, loop_cider: Callable[..., float]) -> None:
    images = [["a " * 2000, "a b"], ["b c " * 1000], ["a b c d"]]
    documents = [[c.split() for c in image] for image in images]
    relevance = opened(images, n=2)
    block = relevance.block(relevance.corpus.references(range(3)), everything(relevance))
    for m, j in np.ndindex(*block.shape):
        expected = loop_cider(documents[m], relevance.corpus.texts[j].split(), documents, n=2)
        assert block[m, j] == pytest.approx(expected, abs=1e-12)


def test_relevance_stays_in_its_range(opened: Open) -> None:
    relevance = opened([["seven words that no other caption has", "x"], ["y z"], ["w v u t s"]])
    singles = relevance.block(References.single(everything(relevance)), everything(relevance))
    assert singles.max() <= 10
    assert singles[0, 0] == pytest.approx(10, abs=1e-12)


@pytest.mark.parametrize("bad", [-1, 2, 7])
def test_rows_outside_the_encoding_are_refused(opened: Open, tiny_corpus: Callable[..., Corpus], bad: int) -> None:
    relevance = opened(tiny_corpus([["a b"], ["c d", "e f"], ["g h"], ["a c"]]), rows=range(3, 5))
    fine, wrong = np.array([3, 4], np.int32), np.array([4, bad], np.int32)
    assert relevance.block(References.single(fine), fine).shape == (2, 2)
    with pytest.raises(IndexError):
        relevance.block(References.single(fine), wrong)
    with pytest.raises(IndexError):
        relevance.pairs(References.single(wrong), fine)
    with pytest.raises(IndexError):
        relevance.query("a b", wrong)


def peer_scores(references: Sequence[list[str]], candidates: Sequence[str]) -> np.ndarray:
    """Score by pycocoevalcap with one candidate per image; the references of the images are its documents."""
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer").CiderScorer(n=4, sigma=6.0)
    for refs, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, refs)
    return scorer.compute_score()[1]


def test_equals_pycocoevalcap_on_real_captions(opened: Open, coco: Corpus, tiny_corpus: Callable[..., Corpus]) -> None:
    images = list(coco.images(["test"]))[:100]
    texts = [[" ".join(lower_split(coco.texts[r])) for r in coco.references([m])[0]] for m in images]
    relevance = opened(tiny_corpus(texts))
    sets = relevance.corpus.references(range(100))
    rng, worst = np.random.default_rng(0), 0.0
    first_captions = relevance.corpus.indptr[:-1].astype(np.int32)
    for chosen in (
        first_captions,
        rng.integers(0, 500, 100, dtype=np.int32),
        rng.integers(0, 500, 100, dtype=np.int32),
    ):
        expected = peer_scores(texts, [relevance.corpus.texts[j] for j in chosen])
        worst = max(worst, np.abs(relevance.pairs(sets, chosen) - expected).max())
        assert expected.max() > 0.05
    assert worst < 1e-9


def test_equals_pycocoevalcap_on_odd_captions(opened: Open) -> None:
    relevance = opened(TANGLED)
    refs = relevance.corpus.references(range(4))
    for j in everything(relevance):
        expected = peer_scores(TANGLED, [relevance.corpus.texts[j]] * 4)
        assert relevance.pairs(refs, np.repeat(j, 4)) == pytest.approx(expected, abs=1e-9)


ASKED = [["a cat on a mat", "a cat"], ["a dog on a sofa", "the dog"], ["two men", "two men ride", ""]]


@pytest.mark.parametrize("variant", ["cider_d", "cider"])
@pytest.mark.parametrize(
    "text", ["a cat on a sofa", "an unseen zebra on a mat", "mat mat on on a", "two", "nothing known", "", "x " * 50]
)
def test_a_new_text_equals_explicit_loops(
    opened: Open, loop_cider: Callable[..., float], text: str, variant: str
) -> None:
    relevance = opened(ASKED, tokenizer="lower_split", variant=variant)
    documents = [[c.split() for c in image] for image in ASKED]
    relevances = relevance.query(text, np.arange(7, dtype=np.int32))
    for j in range(7):
        words = relevance.corpus.texts[j].split()
        expected = loop_cider([text.split()], words, documents, sigma=6.0 if variant == "cider_d" else None)
        assert relevances[j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("params", [{}, {"variant": "cider"}, {"n": 2, "sigma": 1.5}])
def test_one_reference_has_the_bits_of_pairs(opened: Open, params: dict[str, Any]) -> None:
    relevance = opened(TANGLED, **params)
    rows = everything(relevance)
    for row in rows:
        references = References.single(rows[row : row + 1])
        # A block of most captions is computed with numpy, a smaller one by the compiled kernels.
        large, small = relevance.block(references, rows[::-1])[0, ::-1], relevance.block(references, rows[:3])[0]
        pairs = relevance.pairs(References.single(np.full(len(rows), row, np.int32)), rows)
        assert np.array_equal(large, pairs)
        assert np.array_equal(small, pairs[:3])
    sets = relevance.corpus.references(range(1))
    assert np.array_equal(relevance.block(sets, rows, "paired"), relevance.block(References.single(rows[:1]), rows))


def test_one_query_loads_no_compiled_kernels() -> None:
    program = """
import sys
import numpy as np
from relabel.corpus import References
from relabel.sources.cider.ngrams import number_ngrams
from relabel.sources.cider.relevance import CiderRelevance, Weighting, features_of, gauss_of, idf_of
ngrams = number_ngrams(["a dog runs", "a brown dog runs", "two cats sleep"], str.split, 4)
idf = idf_of(ngrams.document_frequency(References.of([[0, 1], [2]])), documents=2)
weighting = Weighting(ngrams.vocabulary.starts, idf, gauss_of(6.0, 4), clip=True)
features = features_of(*ngrams.counts(0, 3), np.array([3, 4, 3]), weighting)
r = CiderRelevance(None, range(3), "refs", features, weighting, lambda: ngrams.vocabulary, str.split, 0.7, 6.0, 1)
rows = np.arange(3, dtype=np.int32)
assert r.block(References.single(rows[:1]), rows)[0].argmax() == 0
assert r.query("two cats sleep", rows).argmax() == 2
assert "numba" not in sys.modules, "numba"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
