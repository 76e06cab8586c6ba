"""Contract: `verify` reads all files and names every damaged, missing or unknown file of an artefact, and nothing else.
Damage to every kind of artefact is that of tests/drills.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.relabel.published import write_captions

from relabel import datasets, stages
from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.stages.run import run
from relabel.stages.verify import verify
from relabel.store.artefact import WORK
from relabel.store.manifest import read_manifest

FETCHED = "eccv"
PARAMS = """
ingest: {format: jsonl, path: captions.jsonl, expected: {}}
tune: {word2vec: {tokenizer: lower_split, width: 8, min_count: 1, epochs: 1}}
neighbours: {k: 20}
judge: {split: val, resamples: 5}
export: {labels: [cider], batches: {batch_size: 16, sampler: neighbour}}
sources:
  same_image: {source: same_image}
  cider: {source: cider, tokenizer: lower_split}
  word2vec: {source: cbow, tokenizer: lower_split, vectors: word2vec}
"""


@pytest.fixture(scope="module")
def all_artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an artefact of every kind and fetched files; tests must not change it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
    write_captions(folder / "captions.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("RELABEL_MIRROR", raising=False)
        session = stages.Session(
            load_config(Path("params.yaml")), Runtime(data=Path("data"), threads=1, rows_per_shard=60)
        )
        assert run(session).problems == []
        stages.lookup_export(session, "word2vec", "val").run()
        stages.batches_export(session, "cider", "val", "batches").run()
        datasets.fetch("eccv", Path("data"))
    return folder


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
    every = "corpus word_vectors encoding neighbours judgement figures calibration report page lookup batches"
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


def test_files_without_an_end_are_named_and_not_read(tree: Path) -> None:
    corpus, lookup = tree / "labels/coco/corpus", tree / "labels/coco/exports/val/lookup/cider"
    pipe, device, large, *_ = sorted(corpus.glob("part-*"))
    for path, place in ((pipe, os.mkfifo), (device, lambda path: path.symlink_to("/dev/zero"))):
        path.unlink()
        place(path)
    os.truncate(large, 20 << 30)  # no block of it is on disk
    (lookup / "manifest.json").unlink()
    os.mkfifo(lookup / "manifest.json")
    assert faults_of(tree) == [
        ("damaged", "labels/coco/corpus/part-00002-of-00004.parquet"),
        ("damaged", "labels/coco/exports/val/lookup/cider/manifest.json"),
        ("unreadable", "labels/coco/corpus/part-00000-of-00004.parquet"),
        ("unreadable", "labels/coco/corpus/part-00001-of-00004.parquet"),
    ]


def test_a_folder_is_read_once_however_links_lead_to_it(tree: Path) -> None:
    expected = verify([tree / "labels"])
    for name, target in (("self", "."), ("again", "coco"), ("coco/up", "..")):
        (tree / "labels" / name).symlink_to(target)
    assert verify([tree / "labels", tree / "labels/coco"]) == expected


def test_a_fetched_file_is_compared_with_its_dataset(tree: Path) -> None:
    findings = verify([tree / "data"])
    assert findings.fetched == len(datasets.load_manifest(FETCHED).files)
    path = tree / "data" / FETCHED / datasets.load_manifest(FETCHED).files[0].name
    path.write_bytes(path.read_bytes()[:-1])
    (problem,) = verify([tree / "data"]).problems
    assert (problem.fault, problem.file) == ("damaged", str(path))
    assert f"relabel fetch {FETCHED}" in problem.found
