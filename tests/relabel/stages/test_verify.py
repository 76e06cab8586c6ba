"""Contract: `verify` reads all files and names every file with a changed byte. Missing and unknown files of an artefact
are named, too.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from relabel import datasets
from relabel.stages.verify import verify
from relabel.store.artefact import WORK
from relabel.store.manifest import read_manifest

FLIPS = 200
FETCHED = "eccv"


@pytest.fixture
def tree(all_artefacts: Path, tmp_path: Path) -> Path:
    """Return a copy that tests may change."""
    return shutil.copytree(all_artefacts, tmp_path / "tree")


def faults_of(tree: Path) -> list[tuple[str, str]]:
    """Return fault and file of every problem."""
    problems = verify([tree / "labels", tree / "data"]).problems
    return [(p.fault, Path(p.file).relative_to(tree).as_posix()) for p in problems]


def files_of(tree: Path) -> list[Path]:
    below = [p for folder in ("labels", "data") for p in sorted((tree / folder).rglob("*"))]
    return [p for p in below if p.is_file() and p.parent.name != WORK]


def test_an_intact_tree_has_no_faults(tree: Path) -> None:
    findings = verify([tree / "labels", tree / "data"])
    files = files_of(tree)
    assert findings.problems == []
    manifests = [p.parent for p in files if p.name == "manifest.json"]
    contents = [p for p in files if p.name != "manifest.json"]
    assert findings.files == len(contents)
    assert findings.bytes == sum(p.stat().st_size for p in contents)
    assert findings.artefacts == len(manifests)
    kinds = {read_manifest(folder).kind for folder in manifests}
    every = "corpus word_vectors encoding neighbours judgement figures report page lookup batches"
    assert kinds == set(every.split())


def test_any_changed_byte_is_detected_and_its_file_named(tree: Path) -> None:
    """Change files of all kinds, one file per folder in one call; exactly these are named.

    Two files of one folder would not be independent: a damaged manifest says nothing of the files beside it.
    """
    chance, files = random.Random(0), files_of(tree)
    assert len(files) < FLIPS
    left = [*files, *(chance.choice(files) for _ in range(FLIPS - len(files)))]
    while left:
        chance.shuffle(left)
        one_per_folder = {path.parent: path for path in left}.values()
        before = {path: path.read_bytes() for path in one_per_folder}
        for path, body in before.items():
            at = chance.randrange(len(body))
            path.write_bytes(body[:at] + bytes([body[at] ^ chance.randrange(1, 256)]) + body[at + 1 :])
            left.remove(path)
        assert sorted(faults_of(tree)) == sorted(("damaged", p.relative_to(tree).as_posix()) for p in one_per_folder)
        for path, body in before.items():
            path.write_bytes(body)
    assert faults_of(tree) == []


def test_missing_truncated_and_extra_files_are_named(tree: Path) -> None:
    corpus, lookup = tree / "labels/coco/corpus", tree / "labels/coco/exports/val/lookup/cider"
    shards = sorted(corpus.glob("part-*"))
    shards[0].unlink()
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    (lookup / "mine.npy").write_bytes(b"1")
    (tree / "labels/notes.txt").write_text("mine, and no fault")
    (tree / "data/vectors.txt").write_text("mine, and no fault")
    (tree / "labels/coco/.gitignore").write_text("/corpus")
    assert sorted(faults_of(tree)) == [
        ("damaged", "labels/coco/corpus/part-00001-of-00004.parquet"),
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
