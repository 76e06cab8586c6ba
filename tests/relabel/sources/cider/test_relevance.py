"""Contract: cider equals explicit loops and pycocoevalcap, as CIDEr-D and as CIDEr. The bits of a pair depend on no
other pair, and a block agrees with them. A new text scores as a reference whose unknown n-grams count in its norm with
document frequency 0.

Cases: poolings, sets of any size, repeated words on both sides, captions shorter than n, captions without words, one
image (idf 0 everywhere), captions of 2,000 words, and rows that are not encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relabel.corpus import Corpus, References
from relabel.corpus.tokenizers import lower_split
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.cider.sets import score_sets
from relabel.sources.relevance import block_of_pairs

Open = Callable[..., CiderRelevance]

TANGLED = [
    ["a cat on a mat on a mat", "a cat", "a cat sat on a mat today ok", "", "mat"],
    ["a dog a dog a dog a dog", "a dog on a mat", "the dog", "dog dog", "a cat on a mat"],
    ["two men ride bikes", "two men two men ride two bikes", "men", "a man rides", "two men ride bikes"],
    ["a"],
]


def by_index(relevance: CiderRelevance, sets: References, rows: np.ndarray, pooling: Any) -> np.ndarray:
    """Score a block, however small, by an index of the captions."""
    positions = relevance.set_positions(sets, pooling), relevance.positions(rows)
    return score_sets(*positions, pooling, relevance.features, relevance.weighting, 1)


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
    sets, rows = relevance.corpus.references(range(len(images))), everything(relevance)
    pairs, block = block_of_pairs(relevance, sets, rows, None), by_index(relevance, sets, rows, "set")
    for m, j in np.ndindex(*block.shape):
        words = relevance.corpus.texts[j].split()
        expected = loop_cider(documents[m], words, documents, n, sigma if variant == "cider_d" else None)
        assert pairs[m, j] == pytest.approx(expected, abs=1e-12)
        assert block[m, j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("pooling", ["set", "mean", "max", "first"])
@pytest.mark.parametrize("variant", ["cider_d", "cider"])
def test_the_bits_of_a_pair_depend_on_no_other_pair_and_blocks_agree(opened: Open, pooling: Any, variant: str) -> None:
    rng = np.random.default_rng(5)
    images = [[" ".join(rng.choice(list("abcdefgh"), rng.integers(0, 12))) for _ in range(3)] for _ in range(150)]
    relevance = opened(images, variant=variant)
    sets = relevance.corpus.references(range(150))
    captions = rng.permutation(everything(relevance))[:200].astype(np.int32)
    every, partner = sets.take(np.repeat(np.arange(150), 200)), np.tile(captions, 150)
    pairs = relevance.pairs(every, partner, pooling)
    for p in rng.integers(0, len(pairs), 300):
        assert relevance.pairs(every.take(np.array([p])), partner[p : p + 1], pooling)[0] == pairs[p]
    order = rng.permutation(len(pairs))
    assert np.array_equal(relevance.pairs(every.take(order), partner[order], pooling), pairs[order])
    assert relevance.block(sets, captions, pooling) == pytest.approx(pairs.reshape(150, 200), abs=1e-12)


def test_poolings(opened: Open) -> None:
    relevance = opened(TANGLED)
    sets, rows = relevance.corpus.references(range(4)), everything(relevance)
    singles = relevance.block(References.single(rows), rows)
    bounds = sets.indptr
    for m in range(4):
        mine = singles[bounds[m] : bounds[m + 1]]
        assert relevance.block(sets, rows, "max")[m] == pytest.approx(mine.max(0), abs=1e-12)
        assert relevance.block(sets, rows, "first")[m] == pytest.approx(mine[0], abs=1e-12)
        assert relevance.block(sets, rows, "mean")[m] == pytest.approx(mine.mean(0), abs=1e-12)
    assert np.array_equal(relevance.block(sets, rows, "mean"), relevance.block(sets, rows, "set"))


def peer_scores(references: Sequence[list[str]], candidates: Sequence[str]) -> np.ndarray:
    """Score by pycocoevalcap with one candidate per image; the references of the images are its documents."""
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer").CiderScorer(n=4, sigma=6.0)
    for refs, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, refs)
    return scorer.compute_score()[1]


@pytest.mark.slow
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


def test_equals_pycocoevalcap_on_odd_captions(opened: Open) -> None:
    relevance = opened(TANGLED)
    refs = relevance.corpus.references(range(4))
    for j in everything(relevance):
        expected = peer_scores(TANGLED, [relevance.corpus.texts[j]] * 4)
        assert relevance.pairs(refs, np.repeat(j, 4)) == pytest.approx(expected, abs=1e-9)
