"""Contract: `verify` reads all files and names every file with a changed byte. Missing files and unknown files of an
artefact are named, too. Unfinished work is reported and is no fault.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from relabel.store.input_index import check_references

from relabel import datasets, stages
from relabel.config import load_config
from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel.stages.verify import verify
from relabel.store.artefact import WORK, build
from relabel.store.manifest import Manifest, Spec, read_manifest
from relabel.store.workdir import Work

FLIPS = 200
FETCHED = "eccv"


@pytest.fixture
def tree(all_artefacts: Path, tmp_path: Path) -> Path:
    """Return a copy that tests may change."""
    return shutil.copytree(all_artefacts, tmp_path / "tree")


def faults_of(tree: Path) -> list[tuple[str, str]]:
    """Return fault and file of every problem."""
    problems = verify([tree / "labels", tree / "data"], tree / "data").problems
    return [(p.fault, Path(p.file).relative_to(tree).as_posix()) for p in problems]


def files_of(tree: Path) -> list[Path]:
    below = [p for folder in ("labels", "data") for p in sorted((tree / folder).rglob("*"))]
    return [p for p in below if p.is_file() and p.parent.name != WORK]


def test_an_intact_tree_has_no_faults(tree: Path) -> None:
    findings = verify([tree / "labels", tree / "data"], tree / "data")
    files = files_of(tree)
    assert findings.problems == []
    assert findings.unfinished == []
    assert findings.files == len(files)
    assert findings.bytes == sum(p.stat().st_size for p in files)
    manifests = [p.parent for p in files if p.name == "manifest.json"]
    assert findings.artefacts == len(manifests)
    kinds = {read_manifest(folder).kind for folder in manifests}
    every = {"corpus", "word_vectors", "encoding", "neighbours", "judgement", "report", "page", "lookup", "plan"}
    assert kinds == every


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


def test_a_changed_byte_anywhere_in_a_manifest_is_detected(tmp_path: Path) -> None:
    """Change every byte in three ways: a digit, a brace, a line end that becomes another kind of line end."""
    build(tmp_path / "out", Spec("demo", "demo", {"size": 3, "text": "ä"}, {"corpus": "abc"}), lambda work: None)
    path = tmp_path / "out" / "manifest.json"
    body = path.read_bytes()
    for at in range(len(body)):
        for change in (0x01, 0x07, 0x80):  # 0x07 turns \n into \r
            path.write_bytes(body[:at] + bytes([body[at] ^ change]) + body[at + 1 :])
            with pytest.raises(CheckError, match=r"manifest\.json"):
                read_manifest(path.parent)


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


def test_any_deleted_manifest_is_named(tree: Path) -> None:
    """Delete manifests, also that of an artefact without other files, whose folder is then empty."""
    manifests = [path for path in files_of(tree) if path.name == "manifest.json"]
    assert not all(read_manifest(path.parent).files for path in manifests)
    assert len(manifests) > 8
    for path in manifests:
        body = path.read_bytes()
        path.unlink()
        assert faults_of(tree) == [("missing", path.relative_to(tree).as_posix())]
        path.write_bytes(body)
    assert faults_of(tree) == []


def test_an_input_that_may_be_a_damaged_artefact_is_not_called_absent(tmp_path: Path) -> None:
    """Check a lookup of all captions, whose manifest does not say that its neighbours were found within train."""
    root = tmp_path / "labels" / "mine"
    lookup = Manifest("lookup", "cider", "a", {}, {"neighbours": "b"}, {}, {}, {})
    folder = root / "exports" / "all" / "lookup" / "cider"
    near = root / "neighbours" / "train" / "captions"
    assert len(check_references({folder: lookup}, [tmp_path])[0]) == 1
    assert check_references({folder: lookup}, [tmp_path], [near / "cider"])[0] == []
    assert len(check_references({folder: lookup}, [tmp_path], [near / "sbert"])[0]) == 1


def test_unfinished_work_is_reported_and_no_fault(tree: Path) -> None:
    def stop(work: Work) -> None:
        work.file("a.txt", lambda path: path.write_text("a") and None)
        (work.folder / ".b.txt-00000000-1.part").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tree / "labels/coco/corpus", Spec("corpus", "coco", {}, {}), stop)
    findings = verify([tree / "labels"], tree / "data")
    assert findings.problems == []
    assert len(findings.unfinished) == 1
    assert "1 files are complete" in findings.unfinished[0]


def test_a_fetched_file_is_compared_with_its_dataset(tree: Path) -> None:
    findings = verify([tree / "data"], tree / "data")
    assert findings.fetched == len(datasets.load_manifest(FETCHED).files)
    path = tree / "data" / FETCHED / datasets.load_manifest(FETCHED).files[0].name
    path.write_bytes(path.read_bytes()[:-1])
    (problem,) = verify([tree / "data"], tree / "data").problems
    assert (problem.fault, problem.file) == ("damaged", str(path))
    assert f"relabel fetch {FETCHED}" in problem.todo


def test_a_damaged_shard_is_rebuilt_and_no_other(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the remedy named by `verify` repairs the fault."""
    monkeypatch.chdir(tree)
    encoding = tree / "labels/coco/encodings/val/cider"
    shards = sorted(encoding.glob("part-*"))
    body = shards[1].read_bytes()
    shards[1].write_bytes(body[:-1])
    inode = shards[0].stat().st_ino
    project = Project(load_config(Path("params.yaml")), Runtime(data=Path("data"), threads=1))
    assert stages.encode(project, "cider", "val").run()[1]
    assert shards[1].read_bytes() == body
    assert shards[0].stat().st_ino == inode
    assert faults_of(tree) == []
