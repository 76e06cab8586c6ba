"""Contract: the files have the names, lines and shapes that the loaders of SCAN's family read, and `relabel ingest`
reads them back; `lookup.at_lines` gives the rows of the lines; blocks equal those of the lookup.

ir_measures reads a label's run and qrels: the run holds the neighbours by id, the qrels their grades by cut points; ids
with spaces are refused. A score at the minimum of the label has no grade.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.export.formats import exported, with_captions

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Queries
from relabel.corpus.build import Caption
from relabel.export.scan import ScanExport
from relabel.stages import Session, open_corpus
from relabel.stages.calibrate import need_calibration
from relabel_train.lookup import Lookup, open_lookup


@pytest.fixture(scope="module")
def session(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return thirty images with 5 to 7 captions in three splits, encoded by word vectors."""
    rng, captions = np.random.default_rng(3), []
    for image, split in enumerate(["train"] * 10 + ["val"] * 10 + ["test"] * 10):
        for i in range(5 + image % 3):
            text = " ".join(rng.choice(["dog", "cats", "red", "bus", "man"], 4)) + ("\u2028 x" if i == 0 else "")
            captions.append(Caption(f"c{image}-{i}", f"{100 + image}", split, text))
    session = with_captions(small_project, tmp_path_factory.mktemp("scan"), captions)
    for split in ("train", "val", "test", "all"):
        stages.encoding(session, "cbow", split).run()
        stages.lookup_export(session, "cbow", split).run()
    return session


def lookup_of(session: Session, split: str) -> Lookup:
    return open_lookup(session.folder("exports", split, "lookup", "cbow"))


def lines_of(path: Path) -> list[str]:
    """Read a file as the loaders do, in text mode and line by line."""
    with path.open(encoding="utf-8") as file:
        return [line.strip() for line in file]


@pytest.mark.parametrize(("split", "name"), [("train", "train"), ("val", "dev"), ("test", "test")])
def test_lines_rows_and_blocks_agree_with_the_lookup(session: Session, split: str, name: str) -> None:
    folder, _ = exported(session, "scan", split=split)
    corpus, lookup = open_corpus(session), lookup_of(session, split)
    captions, rows = lines_of(folder / f"{name}_caps.txt"), np.load(folder / f"{name}_rows.npy")
    assert captions == [" ".join(corpus.texts[row].split()) for row in rows]
    assert lines_of(folder / f"{name}_caption_ids.txt") == [corpus.caption_ids[row] for row in rows]
    images = [f"coco:{line}" for line in lines_of(folder / f"{name}_ids.txt")]
    assert len(captions) == 5 * len(images)
    assert [corpus.image_ids[corpus.image[row]] for row in rows[::5]] == images
    for index in (np.arange(len(captions)), (7, 0, 33)):  # a tuple is what a collate function returns
        np.testing.assert_array_equal(lookup.at_lines(index, 5), rows[list(index)])
    block = np.load(folder / f"{name}_relevance.npy", mmap_mode="r")
    assert block.shape == (len(images), len(captions))
    np.testing.assert_allclose(block, lookup.block(rows[::5], rows), atol=1e-6)


def test_lines_that_a_file_does_not_have_are_refused(session: Session) -> None:
    lookup = lookup_of(session, "test")
    for line in (-1, 50):
        with pytest.raises(IndexError, match="test has 50 lines"):
            lookup.at_lines([3, line], 5)
    refused = (lookup, 8, "fewer than 8 captions"), (lookup_of(session, "all"), 5, "export a lookup of that split")
    for opened, per_image, said in refused:
        with pytest.raises(ValueError, match=said):
            opened.at_lines([7], per_image)
    assert lookup.at_lines(np.arange(len(lookup)), 0).tolist() == list(lookup.rows)


def test_all_splits_share_a_folder_and_ingest_reads_them_back(session: Session, tmp_path: Path) -> None:
    folder, manifest = exported(session, "scan")
    assert manifest.metadata["files"]["dev"] == {"images": 10, "lines": 50}
    (tmp_path / "files").mkdir()
    for path in folder.glob("*_[ci][ad][ps]*.txt"):
        shutil.copy(path, tmp_path / "files")
    settings = ["ingest.format=scan", "ingest.captions_per_image=5", "ingest.expected={}"]
    config = load_config(None, [*settings, f"ingest.path={tmp_path / 'files'}"])
    again = Session(config, Runtime(threads=1), tmp_path / "labels")
    stages.ingestion(again).run()
    assert set(open_corpus(again).image_ids) == set(open_corpus(session).image_ids)
    assert len(open_corpus(again)) == 150


def test_a_large_test_split_is_named_testall(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScanExport, "small_test", 9)
    assert "testall_caps.txt" in exported(session, "scan", split="test", captions_per_image=4)[1].files


def test_a_block_that_is_too_large_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScanExport, "most_bytes", 1024)
    with pytest.raises(UsageError, match=r"block of test .* --no-block"):
        exported(session, "scan", split="test", captions_per_image=0)


def test_all_captions_without_a_block(session: Session) -> None:
    folder, manifest = exported(session, "scan", split="test", captions_per_image=0, block=False)
    lines = manifest.metadata["files"]["test"]["lines"]
    assert len(lines_of(folder / "test_ids.txt")) == lines == len(open_corpus(session).splits["test"])
    assert "test_relevance.npy" not in manifest.files


@pytest.mark.parametrize("given", [{}, {"levels": (0.5, 0.8)}])
def test_ir_measures_reads_both_files(small_project: Session, given: dict[str, Any]) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    folder, manifest = exported(small_project, "trec", **given)
    levels = manifest.metadata["levels"]
    assert levels == list(given.get("levels", levels))
    lookup, corpus = open_lookup(small_project.folder("exports", "all", "lookup", "cbow")), open_corpus(small_project)
    for split, rows in corpus.splits.items():
        run = list(ir_measures.read_trec_run(str(folder / f"{split}.run")))
        qrels = list(ir_measures.read_trec_qrels(str(folder / f"{split}.qrels")))
        near, scores, _ = lookup.neighbours(np.arange(rows.start, rows.stop))
        pairs = [(corpus.caption_ids[row], corpus.caption_ids[j]) for i, row in enumerate(rows) for j in near[i]]
        assert [(doc.query_id, doc.doc_id) for doc in run] == pairs
        np.testing.assert_array_equal(np.array([doc.score for doc in run], np.float32), scores.ravel())
        grades = (scores.ravel()[:, None] >= np.array(levels, np.float32)).sum(axis=1)
        expected = {pair: grade for pair, grade in zip(pairs, grades.tolist(), strict=True) if grade}
        assert {(q.query_id, q.doc_id): q.relevance for q in qrels if q.relevance} == expected
        # A ranking by the scores from which the grades are made is ideal.
        measures = ir_measures.calc_aggregate([ir_measures.nDCG @ 8], qrels, run)
        assert measures[ir_measures.nDCG @ 8] == pytest.approx(1.0)


@pytest.mark.parametrize("queries", ["images", "captions"])
def test_images_have_the_cut_points_of_the_calibration(
    queries: Queries, small_project: Session, tmp_path: Path
) -> None:
    texts = ("a dog runs", "a dog runs fast", "two cats", "two cats run", "red bus", "a red bus")
    session = with_captions(small_project, tmp_path, [Caption(f"{i}", f"{i}", "test", t) for i, t in enumerate(texts)])
    lower = load_config(None, ["sources.lower.source=cider", "sources.lower.tokenizer=lower_split"]).sources["lower"]
    session = replace(session, config=session.config.model_copy(update={"sources": {"lower": lower}}))
    stages.encoding(session, "lower", "test").run()
    stages.neighbour_table(session, "lower", "test", queries).run()
    levels = exported(session, "trec", "lower", "test", queries=queries)[1].metadata["levels"]
    curve = need_calibration(session, "lower").curve
    # A calibration does not apply to two captions.
    assert (levels == [curve.threshold(0.5), curve.threshold(0.8)]) == (queries == "images")
    assert exported(session, "trec", "lower", "test", queries=queries, levels=(1.0,))[1].metadata["levels"] == [1.0]


def test_no_relevance_is_no_grade(small_project: Session, tmp_path: Path) -> None:
    texts = ("a dog", "a dog runs", "two cats", "red bus", "red bus man", "red bus sits", "cats run")
    captions = [Caption(f"{i}", f"{i}", "test", text) for i, text in enumerate(texts)]
    session = with_captions(small_project, tmp_path, captions)
    stages.encoding(session, "cider", "test").run()
    stages.neighbour_table(session, "cider", "test").run()
    folder, manifest = exported(session, "trec", "cider", "test")
    scores = {tuple(line.split()[:3:2]): np.float32(line.split()[4]) for line in lines_of(folder / "test.run")}
    graded = {tuple(line.split()[::2]): int(line.split()[3]) for line in lines_of(folder / "test.qrels")}
    levels = manifest.metadata["levels"]
    positive = sorted(score for score in scores.values() if score > 0)
    assert levels == pytest.approx(sorted({*np.quantile(positive, [0.5, 0.9, 0.99]).tolist()}), abs=1e-6)
    assert 0 < len(graded) < len(positive) < len(scores) / 2
    assert graded == {
        pair: sum(score >= np.float32(level) for level in levels)
        for pair, score in scores.items()
        if score >= np.float32(levels[0])
    }
    captions = [Caption(f"{i}", f"{i}", "test", text) for i, text in enumerate(texts[1:4])]
    (tmp_path / "apart").mkdir()
    session = with_captions(small_project, tmp_path / "apart", captions)
    stages.encoding(session, "cider", "test").run()
    stages.neighbour_table(session, "cider", "test").run()
    with pytest.raises(CheckError, match="no neighbour has a relevance above 0, the minimum of cider"):
        exported(session, "trec", "cider", "test")


def test_ids_with_spaces_are_refused(small_project: Session, tmp_path: Path) -> None:
    captions = [Caption(f"c {i}", f"{i}", "test", "a dog") for i in range(3)]
    session = with_captions(small_project, tmp_path, captions)
    stages.encoding(session, "cbow", "test").run()
    stages.neighbour_table(session, "cbow", "test").run()
    with pytest.raises(CheckError, match="an id with a space"):
        exported(session, "trec", split="test")
