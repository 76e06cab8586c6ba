"""Contract: on COCO's test captions, parsed by SPICE's jar, all counts and scores equal the jar's on every pair judged
by CxC, and the correlations equal the published ones. The jar's figures come from the mirror.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from relabel.core.runtime import Runtime
from relabel.sources.finder import Search
from relabel.sources.spice.relevance import SceneGraphRelevance

Coco = Callable[[str], SceneGraphRelevance]
TOSSED = 58472
"""An image whose references the jar merges now one way, now the other, in these very figures (raw captions): `toilet`
is as similar to `commode` as to `bathroom`, and the order of equals is that of their addresses."""


def judged(mirror: Path, relevance: SceneGraphRelevance) -> tuple[Any, Any, dict[str, Any]]:
    """Return references and captions of the pairs judged by CxC, and the jar's figures."""
    table = pq.read_table(mirror / "spice/cxc_sits_test_scores.parquet")
    body = json.loads(gzip.decompress((mirror / "coco/dataset_coco.json.gz").read_bytes()))
    number = {image["cocoid"]: i for i, image in enumerate(body["images"])}
    row = {name: i for i, name in enumerate(relevance.corpus.caption_ids)}
    captions = np.array([row[f"coco:{c}"] for c in table["caption_id"].to_pylist()], np.int32)
    images = np.array([number[i] for i in table["image_id"].to_pylist()])
    figures = {name: table[name].to_numpy() for name in table.column_names}
    return relevance.corpus.references(images), captions, figures


@pytest.mark.parametrize("text", ["raw", "ptb"])
def test_every_judged_pair_equals_the_jar(text: str, coco: Coco, mirror: Path, jar_f1: Callable[..., float]) -> None:
    relevance = coco(text)
    references, captions, figures = judged(mirror, relevance)
    counted, scores = relevance.counts(references, captions), relevance.pairs(references, captions)
    assert len(captions) == 44_833
    tossed = (figures["image_id"] == TOSSED) & (text == "raw")
    every = np.concatenate([counted, counted.sum(axis=1, keepdims=True)], axis=1)
    for k, kind in enumerate(("object", "attribute", "relation", "all")):
        matched, candidate, reference = every[:, k].T
        counts = {"tp": matched, "fp": candidate - matched, "fn": reference - matched}
        for name, column in counts.items():
            theirs = figures[f"{text}_{kind}_{name}"]
            same = column == theirs
            assert same[~tossed].all(), (kind, name)
            if name != "fn" or kind not in ("relation", "all"):
                assert same.all(), (kind, name)
        f = np.array([jar_f1(*cell, own=kind != "all") for cell in every[:, k].tolist()])
        np.testing.assert_allclose(f[~tossed], figures[f"{text}_{kind}_f"][~tossed], rtol=0, atol=1e-9)
        if kind == "all":
            np.testing.assert_array_equal(scores, f)
    if text == "raw":  # five equal sets of references, for which the jar has 13 relations or 14
        sizes = (figures["raw_relation_tp"] + figures["raw_relation_fn"])[tossed]
        assert sorted(sizes.tolist()) == [13, 13, 14, 14, 14]
        assert set(counted[tossed, 2, 2].tolist()) == {14}


@pytest.mark.parametrize(("text", "every", "others"), [("raw", 0.7295, 0.5337), ("ptb", 0.7279, 0.5329)])
def test_correlations_equal_the_published_ones(
    text: str, every: float, others: float, coco: Coco, mirror: Path
) -> None:
    relevance = coco(text)
    references, captions, figures = judged(mirror, relevance)
    scores = relevance.pairs(references, captions)
    with (mirror / "cxc/sits_test.csv").open(encoding="utf-8") as file:
        human = list(csv.DictReader(file))
    assert [int(h["caption"].rsplit(":", 1)[1]) for h in human] == figures["caption_id"].tolist()
    assert [int(h["image"][-16:-4]) for h in human] == figures["image_id"].tolist()
    judgement = np.array([float(h["agg_score"]) for h in human])
    other = np.array([h["sampling_method"] != "c2i_original" for h in human])
    assert np.corrcoef(scores, judgement)[0, 1] == pytest.approx(every, abs=5e-4)
    assert np.corrcoef(scores[other], judgement[other])[0, 1] == pytest.approx(others, abs=5e-4)


def test_neighbours_of_images_are_a_sort_of_the_block(coco: Coco) -> None:
    relevance = coco("ptb")
    rows = np.arange(len(relevance.rows), dtype=np.int32)
    sets = relevance.corpus.references(range(5000))
    search = Search(sets, np.full(5000, -1, np.int32), rows, 100)
    finder = relevance.finder(search, None, Runtime(threads=2))
    neighbours, scores = finder.find(None, range(1000, 1040), lambda _: None)  # type: ignore[arg-type]
    block = relevance.block(sets.take(np.arange(1000, 1040)), rows)
    order = np.argsort(-block, axis=1, kind="stable")[:, :100]
    np.testing.assert_array_equal(neighbours, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(block, order, 1))
