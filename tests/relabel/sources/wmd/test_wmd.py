"""Contract: the relevance of wmd is linear in word mover's distance and pooled as in the papers. Stop words and words
without a vector are excluded and counted. A caption without a known word has relevance 0 and changes no set.
Bad input is refused in one line.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr
from tests.relabel.sources.wmd.oracle import GLOVE, by_the_book, corpus_of, encode_in, write_vectors

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.datasets.cxc import human_scores
from relabel.sources.base import Encoding
from relabel.sources.wmd import Wmd, WmdParams

WORDS = ["dog", "dogs", "runs", "cat", "sleeps", "sofa", "two", "the", "red", "bus"]
TEXTS = [
    "the dog runs",
    "two dogs dogs sleeps sofa",
    "the cat sleeps on a sofa",
    "qwx zzz",  # no known word
    "a red bus",
    "The Dog runs the unseen",
    "on the of",  # only stop words
    "cat cat dog",
]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    write_vectors(tmp_path / "words.txt", WORDS)
    return tmp_path / "words.txt"


def bag(text: str) -> list[str]:
    return [w for w in text.lower().split() if w not in ("the", "on", "a", "of")]


def expected_distances(vectors: Path) -> np.ndarray:
    vector_of = write_vectors(vectors, WORDS)
    return np.array([[by_the_book(bag(a), bag(b), vector_of) for b in TEXTS] for a in TEXTS])


def test_relevance_is_linear_in_the_pooled_distance(tmp_path: Path, vectors: Path) -> None:
    corpus, apart = corpus_of(TEXTS, 4), expected_distances(vectors)
    relevance, manifest = encode_in(tmp_path, corpus, vectors=str(vectors))
    vector_of = write_vectors(vectors, WORDS)
    reach = 2 * max(np.linalg.norm(vector_of[w]) for w in WORDS if w != "the")
    assert relevance.reach == manifest.metadata["reach"] == pytest.approx(reach)
    sets = References.of([[0, 1, 2, 3], [4, 5], [3, 6]])
    captions = np.arange(len(TEXTS), dtype=np.int32)
    for pooling in ("first", "max", "mean", "set"):
        block = relevance.block(sets, captions, pooling)
        for i in range(len(sets)):
            for c in captions:
                d = [apart[x, c] for x in sets[i] if np.isfinite(apart[x, c])]
                least, mean = (min(d), sum(d) / len(d)) if d else (np.inf, np.inf)
                size = len(sets[i])
                distance = {"first": apart[sets[i][0], c], "max": least, "mean": mean, "set": mean * size + least}
                terms = size + 1 if pooling == "set" else 1
                one = relevance.distances(sets.take(np.array([i])), References.single(captions[c : c + 1]), pooling)[0]
                assert one == pytest.approx(distance[pooling], abs=1e-9)
                assert block[i, c] == pytest.approx(max(0.0, 1 - one / (reach * terms)), abs=1e-12)
        each = relevance.pairs(sets.take(np.repeat(np.arange(3), 8)), np.tile(captions, 3), pooling)
        np.testing.assert_array_equal(block.reshape(-1), each)
    assert (relevance.block(References.single(captions), captions, "max").diagonal() == [1, 1, 1, 0, 1, 1, 0, 1]).all()


def test_sets_of_captions_by_the_papers_sum(tmp_path: Path, vectors: Path) -> None:
    corpus, apart = corpus_of(TEXTS, 4), expected_distances(vectors)
    relevance, _ = encode_in(tmp_path, corpus, vectors=str(vectors))
    sets = References.of([[0, 1, 2], [4, 5, 7, 2], [7], [0, 5], [3]])
    left, right = (sets.take(i.reshape(-1)) for i in np.indices((5, 5)))
    set_distances = relevance.distances(left, right, "set").reshape(5, 5)
    worth = relevance.set_pairs(left, right, "set").reshape(5, 5)
    for i in range(5):
        for j in range(5):
            x, y = sets[i], sets[j]
            total = sum(min(apart[a, b] for b in y) for a in x) + sum(min(apart[a, b] for a in x) for b in y)
            assert set_distances[i, j] == pytest.approx(total, abs=1e-9)
            assert worth[i, j] == pytest.approx(max(0.0, 1 - total / relevance.reach / (len(x) + len(y))), abs=1e-9)
    np.testing.assert_array_equal(set_distances, set_distances.T)
    assert (set_distances.diagonal()[:4] == 0).all()
    # A set and one caption: the same as a reference set and a caption.
    single = References.single(np.array([7] * 5, np.int32))
    np.testing.assert_array_equal(relevance.set_pairs(sets, single, "set"), relevance.pairs(sets, single.rows, "set"))
    for pooling, of_all in (("max", np.min), ("mean", np.mean)):
        cells = [of_all(apart[np.ix_(sets[i], sets[j])]) for i, j in pairwise(range(4))]
        pooled = relevance.distances(sets.take(np.arange(3)), sets.take(np.arange(1, 4)), pooling)
        np.testing.assert_allclose(pooled, cells, atol=1e-9)


def test_a_caption_without_a_known_word_has_relevance_0_and_changes_no_set(tmp_path: Path, vectors: Path) -> None:
    relevance, manifest = encode_in(tmp_path, corpus_of(TEXTS, 4), vectors=str(vectors))
    rows = np.arange(8, dtype=np.int32)
    for row in (3, 6):
        every = References.single(np.full(8, row, np.int32))
        assert not relevance.pairs(every, rows).any()
        assert np.isinf(relevance.distances(every, References.single(rows))).all()
    with_it, without = References.of([[0, 1, 3]]), References.of([[0, 1]])
    for pooling in ("max", "mean"):
        assert relevance.pairs(with_it, rows[7:], pooling) == relevance.pairs(without, rows[7:], pooling)
    metadata = manifest.metadata
    assert metadata["without_vector"] == 2
    assert metadata["warnings"][0] == "2 captions have no known word: their relevance is 0"
    left_out = sum(len(text.split()) - len(bag(text)) for text in TEXTS)
    assert metadata["stop_words"] == {"list": "english", "tokens": left_out, "words": 4}
    assert metadata["oov"]["most_frequent"] == [["qwx", 1], ["zzz", 1], ["unseen", 1]]
    assert metadata["oov"]["of_tokens"] == sum(len(bag(t)) for t in TEXTS)
    assert metadata["vocabulary"] == 9


def test_stop_words_are_a_file_or_none(tmp_path: Path, vectors: Path) -> None:
    stop_words = tmp_path / "stop.txt"
    stop_words.write_text("dog\n\nRed\n")
    corpus, rows = corpus_of(TEXTS, 4), np.arange(8, dtype=np.int32)
    vector_of = write_vectors(vectors, WORDS)
    for named, left_out in (("none", set()), (str(stop_words), {"dog", "red"})):
        relevance, manifest = encode_in(tmp_path / Path(named).stem, corpus, vectors=str(vectors), stop_words=named)
        assert manifest.metadata["stop_words"]["words"] == len(left_out)
        bags = [[w for w in t.lower().split() if w not in left_out] for t in TEXTS]
        expected = [by_the_book(bags[0], one, vector_of) for one in bags]
        np.testing.assert_allclose(
            relevance.distances(References.single(np.zeros(8, np.int32)), References.single(rows)), expected
        )
    stop_words.write_text("two words\n")
    with pytest.raises(CheckError, match="expected one word, found 'two words'"):
        encode_in(tmp_path / "bad", corpus, vectors=str(vectors), stop_words=str(stop_words))
    with pytest.raises(MissingError, match="no file of stop words"):
        encode_in(tmp_path / "bad", corpus, vectors=str(vectors), stop_words="klingon")


def test_unit_vectors(tmp_path: Path, vectors: Path) -> None:
    relevance, _ = encode_in(tmp_path, corpus_of(TEXTS, 4), vectors=str(vectors), unit_vectors=True)
    vector_of = {w: v / np.linalg.norm(v) for w, v in write_vectors(vectors, WORDS).items()}
    expected = [by_the_book(bag(TEXTS[1]), bag(t), vector_of) for t in TEXTS]
    distances_found = relevance.distances(References.single(np.ones(8)), References.single(np.arange(8)))
    np.testing.assert_allclose(distances_found, expected, atol=1e-6)
    assert relevance.reach == pytest.approx(2)


def test_a_new_text_scores_as_a_caption(tmp_path: Path, vectors: Path) -> None:
    corpus = corpus_of(TEXTS, 4)
    part, manifest = encode_in(tmp_path, corpus, range(4), vectors=str(vectors))
    vector_of, rows = write_vectors(vectors, WORDS), np.arange(4, dtype=np.int32)
    for text in TEXTS:  # `bus` and other words do not occur in the encoded rows
        d = np.array([by_the_book(bag(text), bag(t), vector_of) for t in TEXTS[:4]])
        np.testing.assert_allclose(part.query(text, rows), np.maximum(0, 1 - d / part.reach), atol=1e-9)
    assert not part.query("qwx \udc80", rows).any()
    with pytest.raises(IndexError, match="encoded rows 0 to 4"):
        part.pairs(References.single(np.array([0], np.int32)), np.array([5], np.int32))
    source = Wmd(WmdParams(vectors=str(vectors), tokenizer="lower_split"))
    write_vectors(vectors, WORDS, seed=1)
    reopened = source.open(Encoding(corpus, tmp_path / "encoding", manifest, Runtime(threads=1)))
    with pytest.raises(CheckError, match="not the word vectors that the encoding was made with"):
        reopened.query("a red bus", rows)


def test_vectors_without_any_of_the_words_are_refused(tmp_path: Path) -> None:
    write_vectors(tmp_path / "other.txt", ["hund", "katze", "the"])
    with pytest.raises(CheckError, match=r"other\.txt: no word of these captions has a vector: .* as 'dog', 'runs'"):
        encode_in(tmp_path, corpus_of(TEXTS), vectors=str(tmp_path / "other.txt"))
    with pytest.raises(CheckError, match="all are stop words"):
        encode_in(tmp_path, corpus_of(["the of", "on the"]), vectors=str(tmp_path / "other.txt"))
    with pytest.raises(MissingError, match="relabel tune cbow"):
        encode_in(tmp_path, corpus_of(TEXTS))


@pytest.mark.java
@pytest.mark.slow
def test_coco_test_has_the_measured_correlations(mirror: Path, tmp_path: Path, coco: Corpus) -> None:
    """Check GloVe 6B 100-d with PTB tokens, without stop words, pooled by max over five references."""
    from relabel.corpus.tokenizers import tokenize

    if not (mirror / GLOVE).exists():
        pytest.skip(f"the mirror has no {GLOVE}")
    rows = coco.rows(["test"])
    columns = coco.table.slice(rows.start, len(rows)).select(["caption_id", "image_id", "split", "text"]).to_pydict()
    part = Corpus.from_captions(map(Caption, *columns.values()))
    part = part.with_tokens(tokenize(part.texts))
    relevance, manifest = encode_in(tmp_path, part, size=10_000, vectors=str(mirror / GLOVE), tokenizer="ptb")
    assert manifest.metadata["without_vector"] == 0
    sits = human_scores("sits", "test")
    captions = np.array([part.row_of[c] for c in sits.left], np.int32)
    images = np.array([part.image_of[i] for i in sits.right])
    other = part.image[captions] != images
    label = relevance.pairs(part.references(images.tolist()), captions)
    correlations = pearsonr(label, sits.score).statistic, pearsonr(label[other], sits.score[other]).statistic
    assert correlations == pytest.approx((0.812, 0.606), abs=0.002)
