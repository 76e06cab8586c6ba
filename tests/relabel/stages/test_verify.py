"""Contract: `verify` reads all files and names every damaged, missing or unknown file of an artefact, and nothing else.
Damage to every kind of artefact is that of tests/drills.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relabel import datasets
from relabel.stages.verify import verify
from relabel.store.artefact import WORK
from relabel.store.manifest import read_manifest

FETCHED = "eccv"


@pytest.fixture
def tree(all_artefacts: Path, tmp_path: Path) -> Path:
    """Return a copy that tests may change."""
    return shutil.copytree(all_artefacts, tmp_path / "tree")


def faults_of(tree: Path) -> list[tuple[str, str]]:
    """Return fault and file of every problem."""
    problems = verify([tree / "labels", tree / "data"]).problems
    return sorted((p.fault, Path(p.file).relative_to(tree).as_posix()) for p in problems)


def test_an_intact_tree_has_no_faults(tree: Path) -> None:
    findings = verify([tree / "labels", tree / "data"])
    assert findings.problems == []
    below = [p for folder in ("labels", "data") for p in (tree / folder).rglob("*")]
    files = [p for p in below if p.is_file() and p.parent.name != WORK]
    manifests = [p.parent for p in files if p.name == "manifest.json"]
    contents = [p for p in files if p.name != "manifest.json"]
    assert findings.files == len(contents)
    assert findings.bytes == sum(p.stat().st_size for p in contents)
    assert findings.artefacts == len(manifests)
    kinds = {read_manifest(folder).kind for folder in manifests}
    every = "corpus word_vectors encoding neighbours judgement figures report page lookup batches"
    assert kinds == set(every.split())


def test_damaged_missing_and_unknown_files_are_named(tree: Path) -> None:
    corpus, lookup = tree / "labels/coco/corpus", tree / "labels/coco/exports/val/lookup/cider"
    missing, flipped, cut, *_ = sorted(corpus.glob("part-*"))
    missing.unlink()
    body = flipped.read_bytes()
    flipped.write_bytes(body[:9] + bytes([body[9] ^ 1]) + body[10:])
    cut.write_bytes(cut.read_bytes()[:-1])
    (lookup / "mine.npy").write_bytes(b"1")
    (tree / "labels/coco/report/val/cxc/manifest.json").write_text("{}")
    (tree / "labels/notes.txt").write_text("mine, and no fault")
    (tree / "data/vectors.txt").write_text("mine, and no fault")
    (tree / "labels/coco/.gitignore").write_text("/corpus")
    assert faults_of(tree) == [
        ("damaged", "labels/coco/corpus/part-00001-of-00004.parquet"),
        ("damaged", "labels/coco/corpus/part-00002-of-00004.parquet"),
        ("damaged", "labels/coco/report/val/cxc/manifest.json"),
        ("missing", "labels/coco/corpus/part-00000-of-00004.parquet"),
        ("stray", "labels/coco/exports/val/lookup/cider/mine.npy"),
    ]


def test_a_fetched_file_is_compared_with_its_dataset(tree: Path) -> None:
    findings = verify([tree / "data"])
    assert findings.fetched == len(datasets.load_manifest(FETCHED).files)
    path = tree / "data" / FETCHED / datasets.load_manifest(FETCHED).files[0].name
    path.write_bytes(path.read_bytes()[:-1])
    (problem,) = verify([tree / "data"]).problems
    assert (problem.fault, problem.file) == ("damaged", str(path))
    assert f"relabel fetch {FETCHED}" in problem.found
