"""Contract: METEOR equals pycocoevalcap's to 1e-12 for any captions; blocks and queries equal pairs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.relabel.sources.encodings import in_images
from tests.relabel.sources.meteor.fixtures import opened

from relabel.core.java import find_java
from relabel.corpus import Corpus, References
from relabel.corpus.tokenizers import tokenize
from relabel.sources.meteor import MeteorRelevance

ODD = [
    "A dog 😀 runs past the 🇩🇪 flag",
    "كلب أبيض يركض a dog",
    "A dog\x00barks\u2028at the cat",
    "Five o'clock: a man's dog-house, St. Mary's Ave. no. 5, U.S. 3.5m...",
    "a man ||| a woman | a child",
    "dog",
    "the the the the the the the the dog the the the",
    "Call (415) 555-1212 about the café — naïve",
    "A man sees " + " ".join(f"thing{i}" for i in range(1990)) + " in the street with a dog.",  # 2,000 words
]


@pytest.fixture(scope="module")
def meteor(coco_slice: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeteorRelevance]:
    images = [*in_images(coco_slice[:200], 5), ODD[:5], [*ODD[5:], "A dog", "A man"]]
    folder = tmp_path_factory.mktemp("a name with ümlaut and space") / "meteor"
    relevance = opened(images, lambda texts: tokenize(texts), folder)
    yield relevance
    relevance.close()


@pytest.fixture(scope="module")
def original() -> Iterator[Callable[[list[list[str]], list[str]], list[float]]]:
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
def test_equals_pycocoevalcap(
    meteor: MeteorRelevance, original: Callable[[list[list[str]], list[str]], list[float]]
) -> None:
    tokens = meteor.corpus.tokens
    references, captions = sample(meteor.corpus, 300)
    expected = original([[tokens[r] for r in group] for group in references], [tokens[c] for c in captions])
    scores = meteor.pairs(references, captions)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
    assert len(set(np.round(scores, 6))) > 100  # the sample covers many values
    assert scores.min() >= 0
    assert scores.max() <= 1


@pytest.mark.java
@pytest.mark.slow  # METEOR loads for ten seconds
def test_block_and_query_equal_pairs(meteor: MeteorRelevance, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, captions = meteor.corpus, np.array([3, 3, 150, 205, 210], np.int32)
    references = corpus.references([0, 30, 40, 41])
    expected = [[meteor.pairs(corpus.references([m]), captions[[n]])[0] for n in range(5)] for m in (0, 30, 40, 41)]
    np.testing.assert_array_equal(meteor.block(references, captions), expected)
    monkeypatch.setattr("relabel.sources.relevance._BLOCK", 7)
    np.testing.assert_array_equal(meteor.block(references, captions), expected)
    assert meteor.block(references, captions[:0]).shape == (4, 0)
    row = 17
    single = References.single(np.full(5, row, np.int32))
    np.testing.assert_array_equal(meteor.query(corpus.texts[row], captions), meteor.pairs(single, captions))
    for odd in ("", "...", "😀", "\x00\u2028"):
        assert not meteor.query(odd, captions).any()
