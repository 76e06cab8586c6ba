"""Contract: a file of a work folder is complete if it exists, and is written once. Excluded files and those whose names
begin with a dot never reach the artefact.

A build replaces an older artefact of the same kind and name, and nothing else. Anything else at the path of the
artefact is refused by name before any work and stays unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relabel.core.errors import CheckError
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MANIFEST, open_artefact
from relabel.store.workdir import Work


def test_excluded_and_scratch_files_stay_out_of_the_artefact(tmp_path: Path) -> None:
    def fill_with_scratch(work: Work) -> None:
        for name in ("a.txt", "seed.txt", "deep/b.txt", "deep/seed.txt", "folds/c.txt", ".spill", ".rows/d", "e/.f"):
            work.file(name, lambda path: path.write_text("x"))
        work.excluded |= {"seed.txt", "deep/seed.txt", "folds/c.txt"}

    manifest, _ = build(tmp_path / "out", recipe(fill_with_scratch))
    assert sorted(manifest.files) == ["a.txt", "deep/b.txt"]
    assert list(tree(tmp_path / "out")) == ["a.txt", "deep", "deep/b.txt", MANIFEST]
    assert [path.name for path in (tmp_path / ".work").iterdir()] == ["out.lock"]


def fill(work: Work) -> None:
    work.file("a.txt", lambda path: path.write_text("a"))
    work.file("deep/b.txt", lambda path: path.write_text("b"))


def recipe(fill: Callable[[Work], None] = fill, *, kind: str = "batches", name: str = "d", size: int = 1) -> Recipe:
    return Recipe(kind, name, lambda: {"size": size}, {"corpus": "abc"}, fill)


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
    build(out, recipe(kind="lookup"))


def another_name(out: Path) -> None:
    build(out, recipe(name="e", size=2))


def a_cut_manifest(out: Path) -> None:
    build(out, recipe())
    (out / MANIFEST).write_bytes((out / MANIFEST).read_bytes()[:-10])


def notes_beside_files(out: Path) -> None:
    build(out, recipe(size=2))
    (out / "notes.txt").write_text("mine")


def notes_below_files(out: Path) -> None:
    build(out, recipe(size=2))
    (out / "deep" / "notes.txt").write_text("mine")


def notes_in_a_damaged_one(out: Path) -> None:
    build(out, recipe())
    (out / "a.txt").write_text("longer")
    (out / "notes.txt").write_text("mine")


@pytest.mark.parametrize(
    ("lay", "fault"),
    [
        (notes, "no artefact"),
        (a_file, "no artefact"),
        (a_broken_link, "no artefact"),
        (a_link_to_notes, "no artefact"),
        (another_kind, "found lookup d"),
        (another_name, "found batches e"),
        (a_cut_manifest, "not a manifest"),
        (notes_beside_files, "notes.txt"),
        (notes_below_files, "deep/notes.txt"),
        (notes_in_a_damaged_one, "notes.txt"),
    ],
)
def test_anything_else_is_refused_and_unchanged(lay: Callable[[Path], None], fault: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lay(out)
    before = tree(tmp_path)
    with pytest.raises(CheckError) as caught:
        build(out, recipe(never_fill))
    assert fault in caught.value.problem
    assert caught.value.where == str(out)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("same", [True, False])
def test_a_linked_folder_is_replaced_and_its_target_stays(same: bool, tmp_path: Path) -> None:
    """Check a link, as DVC makes to its cache: a damaged artefact behind it is rebuilt, and its files are not moved."""
    cache, out = tmp_path / "cache", tmp_path / "labels" / "out"
    build(cache, recipe(size=1 if same else 2))
    (cache / "a.txt").write_text("longer")
    out.parent.mkdir()
    out.symlink_to(cache)
    before = tree(cache)
    assert build(out, recipe())[1]
    assert not out.is_symlink()
    open_artefact(out, "batches")
    assert tree(cache) == before
    assert [p.name for p in (out.parent / ".work").iterdir()] == ["out.lock"]
