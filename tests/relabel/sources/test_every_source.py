"""Contract: what holds for the relevance of every source with exact neighbours, on captions of COCO.

Neighbours equal a sort of all candidates by (-score, row) of `pairs`, bit for bit: for every pooling and k, little
memory and more threads, some of the queries, with ties, captions without words and failed rows. The bits of a pair
depend on no other pair of the call. Blocks equal pairs within `block_error`, and a caption's text as a query equals the
caption as a reference. A row that is not encoded is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.encodings import assert_same, best_by_pairs, corpus_of, encode, find, write_vectors
from tests.relabel.sources.fuse.fixtures import Table, linear_head, small_model
from tests.relabel.sources.spice.recorded import drawn, open_recorded

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows
from relabel.corpus import Corpus, References
from relabel.sources import finder as finders
from relabel.sources.cbow import Cbow, CbowParams
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.finder import Search
from relabel.sources.fuse.model import FuseModel
from relabel.sources.fuse.relevance import FuseRelevance
from relabel.sources.precomputed import Precomputed, PrecomputedParams
from relabel.sources.relevance import Relevance, block_of_pairs
from relabel.sources.spice import relevance as spice_relevance
from relabel.sources.wmd import Wmd, WmdParams
from relabel.sources.wmd import relevance as wmd_relevance
from relabel_train.scoring.fuse import Feature

POOLINGS: tuple[Pooling, ...] = ("first", "max", "mean", "set")
OF_TEXTS = ("cbow", "cider", "cider_plain", "wmd")
LABELS = (*OF_TEXTS, "clip", "spice", "fuse", "gated_fuse", "fuse_of_ties")
CASES = [(label, how) for label in LABELS for how in POOLINGS if (label, how) != ("cbow", "set")]
EVERY_CASE = pytest.mark.parametrize(("relevance", "pooling"), CASES, indirect=["relevance"], scope="module")


@pytest.fixture(scope="module")
def corpus(coco_slice: list[str]) -> Corpus:
    """Return 40 images of 1 to 5 captions; one caption in four repeats another, and some have no known word."""
    rng, images = np.random.default_rng(3), list[list[str]]()
    for _ in range(40):
        texts = [coco_slice[i].lower().rstrip(". ") for i in rng.integers(0, 80, int(rng.integers(1, 6)))]
        images.append(["zzz qqq" if rng.random() < 0.05 else text for text in texts])
    return corpus_of(images)


@pytest.fixture(scope="module")
def relevance(request: pytest.FixtureRequest, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Relevance:
    """Return a label of the rows of all images but the first two and the last two."""
    folder, label, rng = tmp_path_factory.mktemp("label"), request.param, np.random.default_rng(5)
    rows, settings = range(int(corpus.indptr[2]), int(corpus.indptr[38])), {"tokenizer": "lower_split"}
    if label == "spice":
        request.getfixturevalue("meteor_jar")
        tuples = {text: drawn(rng) if i % 10 else None for i, text in enumerate(dict.fromkeys(corpus.texts))}
        return open_recorded(corpus, tuples.get, folder / "encoding", rows, threads=2)
    if label == "clip":
        for side, ids in (("captions", corpus.caption_ids), ("images", corpus.image_ids)):
            np.save(folder / f"{side}.npy", rng.normal(size=(len(ids), 6)))
            (folder / f"{side}.ids.txt").write_text("\n".join(ids))
        files = {side: str(folder / f"{side}.npy") for side in ("captions", "images")}
        return encode(Precomputed(PrecomputedParams(**files)), corpus, folder / "encoding", rows)[0]  # type: ignore[no-any-return]
    words = sorted({word for text in corpus.texts for word in text.split() if "z" not in word})
    write_vectors(folder / "words.txt", words)
    vectors = settings | {"vectors": str(folder / "words.txt")}
    sources: dict[str, Any] = {
        "cider": Cider(CiderParams(**settings)),
        "cider_plain": Cider(CiderParams(**settings, variant="cider")),
        "wmd": Wmd(WmdParams(**vectors)),
    }
    source = sources.get(label, Cbow(CbowParams(**vectors)))
    opened: Relevance = encode(source, corpus, folder / "encoding", rows, runtime=Runtime(threads=2))[0]
    if "fuse" not in label:
        return opened
    model, far = small_model(), Table(corpus)
    if label == "fuse_of_ties":  # which the error of a block breaks
        head, far.values = linear_head({Feature("far", "max"): 0.5}), far.values.round(1)
        model = FuseModel(model.parts, {"single": head, "set": head})
    gate = "near" if label == "gated_fuse" else None  # it passes every pair
    return FuseRelevance(corpus, rows, "set", {"near": opened, "far": far}, model, gate)


def every_row(relevance: Relevance) -> Rows:
    return np.arange(relevance.rows.start, relevance.rows.stop, dtype=np.int32)


def images_of(relevance: Relevance) -> References:
    return relevance.corpus.references(relevance.corpus.images_of(relevance.rows))


@EVERY_CASE
@pytest.mark.parametrize("small", [False, True])
def test_neighbours_equal_a_sort_of_all_candidates(
    relevance: Relevance, pooling: Pooling, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime(threads=1, device="cpu")
    if small:
        monkeypatch.setattr(finders, "_SMALLEST", 7)
        monkeypatch.setattr(spice_relevance, "_QUERIES", 3)
        monkeypatch.setattr(wmd_relevance, "_BATCH", 3)
        runtime = Runtime(threads=2, device="cpu", memory=1 << 15)
    rows, sets = every_row(relevance), images_of(relevance)
    candidates, exclude = rows[rows % 3 > 0], np.where(np.arange(36) % 3, -1, sets.rows[sets.indptr[:-1]])
    searches = [Search(References.single(rows), rows, rows, k) for k in (1, 7)]
    searches += [Search(sets, np.full(36, -1, np.int32), rows, k) for k in (9, 500)]
    if getattr(relevance, "gate", None) is None:  # a gate's lists have one width, as have those of the search
        searches.append(Search(sets, exclude.astype(np.int32), candidates, 12))
    for number, search in enumerate(searches):
        finder, expected = relevance.finder(search, pooling, runtime), best_by_pairs(relevance, search, pooling)
        work = tmp_path / f"{number}"
        assert_same(find(finder, work), expected)
        for part in (range(3, 20), range(0)):
            assert_same(
                find(finder, work, part), (expected[0][part.start : part.stop], expected[1][part.start : part.stop])
            )


@EVERY_CASE
def test_a_pair_has_its_bits_in_every_call_and_in_blocks(relevance: Relevance, pooling: Pooling) -> None:
    rng, rows, sets = np.random.default_rng(7), every_row(relevance), images_of(relevance)
    captions = rng.permutation(rows)[:50]
    pairs = block_of_pairs(relevance, sets, captions, pooling)
    for m, j in rng.integers(0, (36, 50), (200, 2)).tolist():
        alone = relevance.pairs(sets.take(np.array([m])), captions[[j]], pooling)
        np.testing.assert_array_equal(alone, pairs[[m], j])
    np.testing.assert_allclose(relevance.block(sets, captions, pooling), pairs, rtol=0, atol=relevance.block_error)
    few = relevance.block(sets.take(np.arange(3)), captions, pooling)
    np.testing.assert_allclose(few, pairs[:3], rtol=0, atol=relevance.block_error)


@pytest.mark.parametrize("relevance", OF_TEXTS, indirect=True)
def test_a_caption_as_a_query_equals_it_as_a_reference(relevance: Relevance) -> None:
    rows = every_row(relevance)
    for row in rows[::9]:
        expected = relevance.pairs(References.single(np.full(len(rows), row, np.int32)), rows, "first")
        np.testing.assert_allclose(relevance.query(relevance.corpus.texts[row], rows), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("relevance", [*OF_TEXTS, "clip", "spice"], indirect=True)
def test_a_row_that_is_not_encoded_is_an_error(relevance: Relevance) -> None:
    inside = every_row(relevance)[:1]
    for outside in (0, relevance.rows.start - 1, relevance.rows.stop):
        wrong = np.array([outside], np.int32)
        for references, captions in ((wrong, inside), (inside, wrong)):
            for score in (relevance.pairs, relevance.block):
                with pytest.raises(IndexError, match="not all among the encoded rows"):
                    score(References.single(references), captions)
