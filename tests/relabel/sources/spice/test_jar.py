"""Contract: the scores that the jar's command line computes by parsing captions equal the counts of its recorded
tuples. On COCO's test captions, parsed by the jar, all counts and scores equal the jar's on every pair judged by CxC,
and the correlations equal the published ones. The jar's figures come from the mirror.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.spice.counts import counts

from relabel.core.errors import RelabelError
from relabel.core.java import find_java, java_version
from relabel.core.runtime import Runtime, default_data
from relabel.sources.finder import Search
from relabel.sources.spice.encode import collapsed
from relabel.sources.spice.parser import class_path
from relabel.sources.spice.relevance import SceneGraphRelevance

NASHORN = "RELABEL_NASHORN"
"""Names a folder that holds nashorn-core-15.4.jar and the ASM jars it needs, at any depth: `-out` needs a JavaScript
engine, which Java lost in 15."""
PAIRS = 8


def scripting_java() -> Path:
    """Return a Java with the modules that Nashorn needs; the runtime of a wheel may lack `jdk.dynalink`."""
    for java in (str(find_java()), shutil.which("java")):
        listed = [java, "--list-modules"] if java else ["true"]
        if "jdk.dynalink" in subprocess.run(listed, capture_output=True, text=True, check=False).stdout:
            return Path(str(java))
    pytest.skip("no Java on this machine has the module jdk.dynalink, which Nashorn needs")


@pytest.fixture
def jars() -> list[Path]:
    try:
        jar_paths = class_path(default_data())
        version = java_version(scripting_java())
    except RelabelError as error:
        pytest.skip(str(error))
    if "1.8" in version or any(f" {v}." in version for v in range(9, 15)):
        return jar_paths
    folder = os.environ.get(NASHORN)
    scripts = sorted(Path(folder).rglob("*.jar")) if folder else []
    if not any("nashorn" in jar.name for jar in scripts):
        pytest.skip(f"{NASHORN} names no folder with org.openjdk.nashorn:nashorn-core:15.4")
    return [*jar_paths, *scripts]


@pytest.mark.java
@pytest.mark.slow
def test_the_jars_command_line_agrees(
    jars: list[Path], coco: Callable[[str], SceneGraphRelevance], tmp_path: Path
) -> None:
    relevance = coco("raw")
    corpus, rng = relevance.corpus, np.random.default_rng(0)
    images = rng.integers(0, len(corpus.image_ids), PAIRS)
    references = corpus.references(images)
    captions = np.array([references[i][1] if i % 2 else rng.integers(0, len(corpus)) for i in range(PAIRS)], np.int32)
    texts = [collapsed(text) for text in corpus.texts]
    pairs = [
        {"image_id": i, "test": texts[caption], "refs": [texts[row] for row in references[i]]}
        for i, caption in enumerate(captions.tolist())
    ]
    (tmp_path / "in.json").write_text(json.dumps(pairs))
    path = os.pathsep.join(map(str, jars))
    options = ["-out", str(tmp_path / "out.json"), "-subset", "-silent", "-threads", "1"]
    command = [
        str(scripting_java()),
        "-Xmx4G",
        "-cp",
        path,
        "edu.anu.spice.SpiceScorer",
        str(tmp_path / "in.json"),
        *options,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads((tmp_path / "out.json").read_text())
    counted = counts(relevance, references, captions)
    scores = relevance.pairs(references, captions)
    for i, item in enumerate(theirs):
        assert item["image_id"] == i
        for k, kind in enumerate(("Object", "Attribute", "Relation")):
            matched, candidate, reference = counted[i, k].tolist()
            cell = item["scores"][kind]
            assert [cell["tp"], cell["fp"], cell["fn"]] == [matched, candidate - matched, reference - matched]
        assert item["scores"]["All"]["f"] == pytest.approx(scores[i], abs=1e-9)


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
    counted, scores = counts(relevance, references, captions), relevance.pairs(references, captions)
    assert len(captions) == 44_833
    tossed = (figures["image_id"] == TOSSED) & (text == "raw")
    every = np.concatenate([counted, counted.sum(axis=1, keepdims=True)], axis=1)
    for k, kind in enumerate(("object", "attribute", "relation", "all")):
        matched, candidate, reference = every[:, k].T
        figure = {"tp": matched, "fp": candidate - matched, "fn": reference - matched}
        for name, column in figure.items():
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
