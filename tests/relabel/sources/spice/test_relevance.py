"""Contract: pairs and blocks of spice equal explicit loops bit for bit, for any pooling and number of tuples. Without
tuples relevance is 0, and a failed row has NaN. A new text is scored as a caption. Every block of a lookup equals
`Relevance.block` bit for bit, for any pooling.

On COCO's test captions, parsed by the jar, scores equal the jar's on every pair judged by CxC; the jar's figures come
from the mirror.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.spice.recorded import drawn

from relabel.corpus import References
from relabel.export.base import ArtefactRef
from relabel.export.lookup import lookup_parameters, write_lookup
from relabel.export.params import ExportLookupParams
from relabel.sources.spice import Spice, SpiceParams
from relabel.sources.spice.relevance import SceneGraphRelevance
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import read_manifest
from relabel.store.workdir import Work
from relabel_train.lookup import open_lookup

Opened = Callable[..., SceneGraphRelevance]
POOLINGS = ("first", "max", "mean", "set")


def by_loops(oracle: Any, references: list[Any], candidate: Any, pooling: str) -> float:
    singles = [oracle.f1([r], candidate) for r in references]
    if pooling == "set":
        return float(oracle.f1(references, candidate))
    if pooling == "mean":
        total = 0.0
        for score in singles:
            total += score
        return total / len(singles)
    return float(singles[0] if pooling == "first" else max(singles))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pairs_and_blocks_equal_loops(pooling: Any, threads: int, opened: Opened, oracle: Any) -> None:
    rng = np.random.default_rng(3)
    images = [[drawn(rng) for _ in range(int(rng.integers(1, 6)))] for _ in range(14)]
    relevance = opened(images, threads)
    tuples, corpus = [t for image in images for t in image], relevance.corpus
    sets, rows = corpus.references(range(len(images))), np.arange(len(tuples), dtype=np.int32)
    expected = np.array([[by_loops(oracle, image, t, pooling) for t in tuples] for image in images])
    assert 0.1 < (expected > 0).mean() < 1
    np.testing.assert_array_equal(relevance.block(sets, rows, pooling), expected)
    every = sets.take(np.repeat(np.arange(len(images)), len(rows)))
    scores = relevance.pairs(every, np.tile(rows, len(images)), pooling).reshape(expected.shape)
    np.testing.assert_array_equal(scores, expected)


def test_without_tuples_relevance_is_zero_and_a_failed_row_is_nan(opened: Opened) -> None:
    relevance = opened([[[], [["man"]]], [None, [["man"]]], [[]]])
    assert relevance.failed.tolist() == [2]
    rows = np.arange(5, dtype=np.int32)
    nan, sets = np.nan, relevance.corpus.references(range(3))
    for pooling, score in {"set": 1, "max": 1, "mean": 0.5, "first": 0}.items():
        block = relevance.block(sets, rows, pooling)  # type: ignore[arg-type]
        np.testing.assert_array_equal(block, [[0, score, nan, score, 0], [nan] * 5, [0, 0, nan, 0, 0]])


def test_a_new_text_is_scored_as_a_caption(opened: Opened, oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    images = [[drawn(rng)] for _ in range(30)]
    tuples = [["hombre"], ["gentleman", "girl", "be beside"], ["girl", "blue"], ["gentleman", "road", "on"], ["woman"]]
    relevance = opened(images)
    parser = SimpleNamespace(parse=lambda texts: [tuples], close=lambda: None)
    monkeypatch.setattr("relabel.sources.spice.cached_parser", lambda *_: parser)
    scores = relevance.query("as told", np.arange(30, dtype=np.int32))
    expected = [oracle.f1([tuples], image[0]) for image in images]
    assert max(expected) > 0
    np.testing.assert_array_equal(scores, expected)


@pytest.fixture
def exported(tmp_path: Path, opened: Opened) -> tuple[Path, Any]:
    """Export a lookup of 30 images, one with a failed caption, and return it with the relevance."""
    rng = np.random.default_rng(2)
    images: list[Any] = [[drawn(rng) for _ in range(int(rng.integers(1, 8)))] for _ in range(30)]
    images[20][0] = None
    relevance, source = opened(images), Spice(SpiceParams())
    encoding = ArtefactRef(tmp_path / "encoding", read_manifest(tmp_path / "encoding", "encoding"))
    config = partial(lookup_parameters, source, ExportLookupParams())

    def fill(work: Work) -> None:
        given: Any = {"corpus": relevance.corpus, "source": source, "params": {}, "neighbours": None}
        inputs: Any = SimpleNamespace(**given, encoding=encoding, open_relevance=lambda: relevance)
        write_lookup(inputs, recipe.spec(), work)

    recipe = Recipe("lookup", "spice", config, {"encoding": encoding.manifest.identity}, fill)
    build(tmp_path / "lookup", recipe)
    return tmp_path / "lookup", relevance


@pytest.mark.parametrize("pooling", POOLINGS)
def test_blocks_are_bit_identical_to_the_relevance(pooling: Any, exported: tuple[Path, Any]) -> None:
    folder, relevance = exported
    lookup, corpus = open_lookup(folder, verify=True), relevance.corpus
    assert (lookup.about.kind, lookup.about.source, lookup.about.failed) == ("scene_graphs", "spice", 1)
    rng = np.random.default_rng(4)
    for _ in range(5):
        rows, columns = (rng.integers(0, len(lookup), size).astype(np.int32) for size in (25, 31))
        sets = References.single(rows) if pooling == "first" else corpus.references(corpus.image[rows])
        expected = relevance.block(sets, columns, pooling)
        np.testing.assert_array_equal(lookup.block(rows, columns, pooling, dtype=np.float64, missing="nan"), expected)
        np.testing.assert_array_equal(lookup.block(rows, columns, pooling, missing="nan"), expected.astype(np.float32))
    assert lookup.block([], [1], pooling).shape == (0, 1)
    assert lookup.block([1], [], pooling).shape == (1, 0)


Coco = Callable[[str], SceneGraphRelevance]
TOSSED = 58472
"""An image whose references the jar merges now one way, now the other, in these very figures (raw captions): `toilet`
is as similar to `commode` as to `bathroom`, and the order of equals is that of their addresses."""


@pytest.mark.parametrize("text", ["raw", "ptb"])
def test_every_judged_pair_equals_the_jar(text: str, coco: Coco, mirror: Path) -> None:
    relevance = coco(text)
    table = pq.read_table(mirror / "spice/cxc_sits_test_scores.parquet")
    body = json.loads(gzip.decompress((mirror / "coco/dataset_coco.json.gz").read_bytes()))
    number = {image["cocoid"]: i for i, image in enumerate(body["images"])}
    row_of = {id: row for row, id in enumerate(id for image in body["images"] for id in image["sentids"])}
    captions = np.array([row_of[c] for c in table["caption_id"].to_pylist()], np.int32)
    references = relevance.corpus.references(np.array([number[i] for i in table["image_id"].to_pylist()]))
    scores, theirs = relevance.pairs(references, captions), table[f"{text}_all_f"].to_numpy()
    tossed = (table["image_id"].to_numpy() == TOSSED) & (text == "raw")
    assert (len(captions), tossed.sum()) == (44_833, 5 if text == "raw" else 0)
    np.testing.assert_allclose(scores[~tossed], theirs[~tossed], rtol=0, atol=1e-9)
    assert np.abs(scores - theirs).max() < 0.02
