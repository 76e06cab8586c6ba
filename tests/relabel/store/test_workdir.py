"""Contract: a file of a work folder counts only with its record, is written once, and is rewritten if it is damaged.
Shards of another count are rejected, and files that no manifest names are found.

A build replaces an older artefact of the same kind and name, and nothing else. Anything else at the path of the
artefact is refused by name before any work and stays unchanged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.core.errors import CheckError, RelabelError, UsageError
from relabel.store.artefact import build
from relabel.store.manifest import MANIFEST, Spec, open_artefact
from relabel.store.workdir import DONE, Work, foreign_files, part_name, part_ranges, unexpected_files


def never(path: Path) -> None:
    raise AssertionError(f"{path.name} is made again")


def test_a_file_is_written_once(tmp_path: Path) -> None:
    Work(tmp_path).file("a.txt", lambda path: path.write_text("a dog"), rows=1)
    work = Work(tmp_path)
    assert work.done("a.txt")
    work.file("a.txt", never)
    assert work.entries()["a.txt"].rows == 1


@pytest.mark.parametrize("damage", ["longer", "same size", "missing", "no record", "torn record"])
def test_a_damaged_file_is_rewritten(tmp_path: Path, damage: str) -> None:
    Work(tmp_path).file("a.txt", lambda path: path.write_text("a dog"))
    path, record = tmp_path / "a.txt", tmp_path / DONE / "a.txt.json"
    if damage == "missing":
        path.unlink()
    elif damage == "no record":
        record.unlink()
    elif damage == "torn record":
        record.write_text(record.read_text()[:20])
    else:
        path.write_text("a dogs" if damage == "longer" else "a cat")
    work = Work(tmp_path)
    assert not work.done("a.txt")
    work.file("a.txt", lambda path: path.write_text("a dog"))
    assert path.read_text() == "a dog"
    assert Work(tmp_path).done("a.txt")


def test_an_error_commits_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise ValueError("half")

    work = Work(tmp_path)
    with pytest.raises(ValueError, match="half"):
        work.file("a.txt", fail)
    assert not work.done("a.txt")
    assert work.entries() == {}


def test_shards_of_another_count_are_rejected(tmp_path: Path) -> None:
    Work(tmp_path).part(0, 2, lambda: pa.table({"x": [1]}))
    with pytest.raises(CheckError, match="expected shards like part-00000-of-00003"):
        Work(tmp_path).part(0, 3, lambda: pa.table({"x": [1]}))
    assert pq.read_table(tmp_path / part_name(0, 2))["x"].to_pylist() == [1]


def test_a_subfolder_is_recorded_by_the_outer_work(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.subfolder("fold-0").file("a.txt", lambda path: path.write_text("a dog"))
    assert list(work.entries()) == ["fold-0/a.txt"]
    assert Work(tmp_path).subfolder("fold-0").done("a.txt")
    work.drop("fold-0/a.txt")
    assert not Work(tmp_path).subfolder("fold-0").done("a.txt")


def test_files_that_no_manifest_names_are_found(tmp_path: Path) -> None:
    for name in (
        "a.txt",
        "sub/b.txt",
        "sub/extra.txt",
        "other/c.txt",
        "manifest.json",
        ".gitignore",
        ".x-01234567-1.part",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    named = ["a.txt", "sub/b.txt"]
    unexpected = [path.relative_to(tmp_path).as_posix() for path in unexpected_files(tmp_path, named)]
    assert unexpected == [".gitignore", ".x-01234567-1.part", "other", "sub/extra.txt"]
    assert [path.name for path in foreign_files(tmp_path, named)] == ["other", "extra.txt"]


@pytest.mark.parametrize(("rows", "each"), [(range(0), 3), (range(5, 6), 3), (range(4, 10), 3), (range(0, 10), 3)])
def test_shards_cover_the_rows(rows: range, each: int) -> None:
    parts = part_ranges(rows, each)
    assert [row for part in parts for row in part] == list(rows)
    assert all(len(part) == each for part in parts[:-1])


def artefact(kind: str = "plan", name: str = "d", size: int = 1) -> Spec:
    return Spec(kind, name, {"size": size}, {"corpus": "abc"})


def fill(work: Work) -> None:
    work.file("a.txt", lambda path: path.write_text("a") and None)
    work.file("deep/b.txt", lambda path: path.write_text("b") and None)


def never_fill(work: Work) -> None:
    raise AssertionError("work was begun")


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Return everything below a folder: contents of files, targets of links, None for folders."""
    entries: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            entries[name] = str(path.readlink())
        else:
            entries[name] = path.read_bytes() if path.is_file() else None
    return entries


def notes(out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("mine")


def a_file(out: Path) -> None:
    out.write_text("mine")


def a_broken_link(out: Path) -> None:
    out.symlink_to(out.parent / "nowhere")


def a_link_to_notes(out: Path) -> None:
    notes(out.parent / "notes")
    out.symlink_to(out.parent / "notes")


def another_kind(out: Path) -> None:
    build(out, artefact("lookup"), fill)


def another_name(out: Path) -> None:
    build(out, artefact(name="e", size=2), fill)


def a_foreign_manifest(out: Path) -> None:
    out.mkdir()
    (out / MANIFEST).write_text('{"manifest_version": 3, "name": "d"}')


def a_cut_manifest(out: Path) -> None:
    build(out, artefact(), fill)
    (out / MANIFEST).write_bytes((out / MANIFEST).read_bytes()[:-10])


def a_lost_manifest(out: Path) -> None:
    build(out, artefact(), lambda work: work.part(0, 1, lambda: pa.table({"row": [1]})))
    (out / MANIFEST).unlink()


def artefacts(out: Path) -> None:
    build(out / "cider", artefact("lookup", "cider"), fill)


def notes_beside_files(out: Path) -> None:
    build(out, artefact(size=2), fill)
    (out / "notes.txt").write_text("mine")


def notes_below_files(out: Path) -> None:
    build(out, artefact(size=2), fill)
    (out / "deep" / "notes.txt").write_text("mine")


def notes_in_a_damaged_one(out: Path) -> None:
    build(out, artefact(), fill)
    (out / "a.txt").write_text("x")
    (out / "notes.txt").write_text("mine")


@pytest.mark.parametrize(
    ("lay", "message"),
    [
        (notes, r"files that relabel did not write \(thesis\.tex\)"),
        (a_file, "a file, not a folder"),
        (a_broken_link, "a link to a folder that does not exist"),
        (a_link_to_notes, r"files that relabel did not write \(thesis\.tex\)"),
        (another_kind, "found lookup d, where only an older plan d may be replaced"),
        (another_name, "found plan e, where only an older plan d may be replaced"),
        (a_foreign_manifest, "a manifest that cannot be read"),
        (a_lost_manifest, r"files of an artefact without its manifest \(part-00000-of-00001\.parquet\)"),
        (a_cut_manifest, r"a manifest that cannot be read \(not a manifest"),
        (artefacts, "files that relabel did not write"),
        (notes_beside_files, r"found notes\.txt, which relabel did not write"),
        (notes_below_files, r"found deep/notes\.txt, which relabel did not write"),
        (notes_in_a_damaged_one, r"found notes\.txt, which relabel did not write"),
    ],
)
def test_anything_else_is_refused_and_unchanged(lay: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lay(out)
    before = tree(tmp_path)
    with pytest.raises(CheckError, match=message) as error:
        build(out, artefact(), never_fill)
    assert str(out) in str(error.value)
    assert error.value.todo
    assert tree(tmp_path) == before


@pytest.mark.parametrize("path", [".", "..", "deep/.."])
def test_a_path_without_a_name_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match="a name of its own"):
        build(Path(path), artefact(), never_fill)
    assert tree(tmp_path) == {"here": None, "here/deep": None}


def test_older_artefacts_and_empty_folders_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for size in (1, 2, 3):
        assert build(out, artefact(size=size), fill)[1]
        assert open_artefact(out, "plan").semantic == {"size": size}
    assert [p.name for p in (tmp_path / ".work").iterdir()] == ["out.lock"]


def test_files_of_relabel_and_dvc_do_not_stop_a_build(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, artefact(size=2), fill)
    (out / ".gitignore").write_text("/a.txt")
    (out / ".a.txt-00000000-1.part").write_text("half")
    (out / ".done").mkdir()
    assert build(out, artefact(), fill)[1]
    assert sorted(p.name for p in out.iterdir()) == ["a.txt", "deep", MANIFEST]


def test_a_model_replaces_a_model_of_the_same_kind(tmp_path: Path) -> None:
    build(tmp_path / "out", artefact("fuse_model", "fuse of cider, cbow"), fill)
    assert build(tmp_path / "out", artefact("fuse_model", "fuse of cider", size=2), fill)[1]
    with pytest.raises(CheckError, match="found fuse_model fuse of cider, where only an older cross_encoder may"):
        build(tmp_path / "out", artefact("cross_encoder", "fuse of cider"), never_fill)


def test_notes_written_during_a_build_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, artefact(size=2), fill)

    def slow(work: Work) -> None:
        fill(work)
        (out / "notes.txt").write_text("mine")

    with pytest.raises(CheckError, match=r"found notes\.txt"):
        build(out, artefact(), slow)
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("same", [True, False])
def test_a_linked_folder_is_replaced_and_its_target_stays(same: bool, tmp_path: Path) -> None:
    """Check a link, as DVC makes to its cache: a damaged artefact behind it is rebuilt, and its files are not moved."""
    cache, out = tmp_path / "cache", tmp_path / "labels" / "out"
    build(cache, artefact(size=1 if same else 2), fill)
    (cache / "a.txt").write_text("damaged")
    out.parent.mkdir()
    out.symlink_to(cache)
    before = tree(cache)
    assert build(out, artefact(), fill)[1]
    assert not out.is_symlink()
    open_artefact(out, "plan")
    assert tree(cache) == before
    assert [p.name for p in (out.parent / ".work").iterdir()] == ["out.lock"]


def test_linked_files_are_replaced_and_their_targets_stay(tmp_path: Path) -> None:
    cache, out = tmp_path / "cache", tmp_path / "out"
    build(cache, artefact(), fill)
    (cache / "a.txt").write_text("damaged")
    shutil.copytree(cache, out)
    for name in ("a.txt", "deep/b.txt", MANIFEST):
        (out / name).unlink()
        (out / name).symlink_to(cache / name)
    before = tree(cache)
    assert build(out, artefact(), fill)[1]
    open_artefact(out, "plan")
    assert tree(cache) == before


def test_a_manifest_that_names_files_outside_its_folder_is_refused(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim.txt"
    victim.write_text("mine")
    manifest, _ = build(out, artefact(), fill)
    for name in ("../victim.txt", str(victim), "deep/../../victim.txt"):
        manifest.files[name] = manifest.files["a.txt"]
        (out / MANIFEST).write_text(manifest.to_json())
        before = tree(tmp_path)
        with pytest.raises(RelabelError, match="outside its folder"):
            open_artefact(out, "plan")
        assert tree(tmp_path) == before
        del manifest.files[name]
