"""Contract: an artefact is complete or absent, is reused only under the same fingerprint without reading its files,
and resumes file by file. Rows that failed are tried again on request only. A reader names a file that is missing or of
another size. One run at a time works on an artefact; a second one waits.

Contract: excluded files and those whose names begin with a dot never reach the artefact. A build replaces an older
artefact of the same kind and name, and nothing else: anything else at its path is refused by name before any work and
stays unchanged.

Contract: a manifest is read exactly as it was written, or refused with its path. It names no file outside its
folder. A pipe, a device and a manifest that is too large are refused before they are read.

Contract: the hash of an input file is remembered between processes, and computed again after any change of the file,
also one that keeps its size and time of modification, or is made through a map that another program holds. Damage in
what is remembered is found.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import CheckError, UsageError
from relabel.store import files
from relabel.store.artefact import Recipe, build
from relabel.store.files import input_sha256
from relabel.store.manifest import MANIFEST, open_artefact, read_manifest
from relabel.store.workdir import Work
from relabel_train.files import sha256_file

FILES = ["a.txt", "deep/b.txt", "deep/c.txt"]


def filler(made: list[str], stop_at: str = "") -> Callable[[Work], None]:
    """Return a function that writes FILES, adds each name to `made`, and is interrupted at one of them."""

    def write(file: str, path: Path) -> None:
        if file == stop_at:
            raise KeyboardInterrupt
        path.write_text(file)
        made.append(file)

    def fill(work: Work) -> None:
        for file in FILES:
            work.file(file, partial(write, file))
        work.metadata |= {"rows": [3, 10], "nested": {"2": "ü", "10": None}}

    return fill


def never(work: Work) -> None:
    raise AssertionError("work was begun")


plain = filler([])


def recipe(fill: Callable[[Work], None] = plain, kind: str = "batches", name: str = "d", size: int = 1) -> Recipe:
    return Recipe(kind, name, lambda: {"size": size}, {"corpus": "abc"}, fill)


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Return everything below a folder: contents of files, targets of links, None for folders."""
    entries: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else None
        entries[path.relative_to(folder).as_posix()] = str(path.readlink()) if path.is_symlink() else content
    return entries


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_an_artefact_is_reused_without_reading_its_files_under_the_same_fingerprint(out: Path) -> None:
    manifest, _ = build(out, recipe())
    (out / FILES[1]).write_text("x" * len(FILES[1]))
    assert build(out, recipe(never)) == (manifest, False)
    assert open_artefact(out, "batches") == manifest
    made: list[str] = []
    for other in (recipe(filler(made), size=2), replace(recipe(filler(made), size=2), inputs={"corpus": "abd"})):
        manifest, built = build(out, other)
        assert (built, manifest.fingerprint) == (True, other.spec().fingerprint)
    assert made == FILES * 2


def test_an_interrupted_build_keeps_the_old_artefact_and_resumes(out: Path, tmp_path: Path) -> None:
    build(out, recipe())
    old, made = tree(out), list[str]()
    with pytest.raises(KeyboardInterrupt):
        build(out, recipe(filler(made, stop_at=FILES[2]), size=2))
    assert tree(out) == old
    build(out, recipe(filler(made), size=2))
    assert made == FILES
    whole, _ = build(tmp_path / "whole", recipe(size=2))
    # The seconds of the last process are not those of all work.
    assert (read_manifest(out).provenance["resumed"], whole.provenance.get("resumed")) == (True, None)
    assert tree(out) | {MANIFEST: None} == tree(tmp_path / "whole") | {MANIFEST: None}


@pytest.mark.parametrize("damage", [os.unlink, partial(os.truncate, length=1)])
def test_a_file_that_is_missing_or_of_another_size_is_named_and_made_again(
    damage: Callable[[Path], None], out: Path
) -> None:
    manifest, _ = build(out, recipe())
    damage(out / FILES[1])
    with pytest.raises(CheckError, match=FILES[1]):
        open_artefact(out, "batches")
    assert build(out, recipe())[1]
    assert open_artefact(out, "batches").files == manifest.files


@pytest.mark.parametrize("rows", [0, 2])
def test_failed_rows_are_built_again_on_request_only(rows: int, out: Path) -> None:
    def fill(work: Work) -> None:
        filler([])(work)
        work.metadata["failed"] = {"rows": rows, "sha256": "abc"}

    manifest, _ = build(out, recipe(fill))
    assert manifest.identity == (f"{manifest.fingerprint} without abc" if rows else manifest.fingerprint)
    assert not build(out, recipe(never))[1]
    assert build(out, recipe(fill), again=lambda manifest: manifest.failed > 0)[1] == bool(rows)
    mended, built = build(out, recipe(), again=lambda manifest: manifest.failed > 0)
    assert (built, mended.identity) == (bool(rows), manifest.fingerprint)


def test_of_two_builds_at_once_one_builds_and_the_other_finds_it(out: Path) -> None:
    begun, made, results = threading.Event(), list[str](), list[bool]()

    def slow(work: Work) -> None:
        begun.set()
        thread.join(0.3)  # the other build waits for the lock by now
        filler(made)(work)

    thread = threading.Thread(target=lambda: results.append(begun.wait(20) and build(out, recipe(filler(made)))[1]))
    thread.start()
    assert build(out, recipe(slow))[1]
    thread.join(20)
    assert (results, made) == ([False], FILES)


def test_excluded_and_scratch_files_stay_out_of_the_artefact(out: Path) -> None:
    def fill(work: Work) -> None:
        for name in ("a.txt", "seed.txt", "deep/b.txt", "deep/seed.txt", "folds/c.txt", ".spill", ".rows/d", "e/.f"):
            work.file(name, lambda path: path.write_text("x"))
        work.excluded |= {"seed.txt", "deep/seed.txt", "folds/c.txt"}

    manifest, _ = build(out, recipe(fill))
    assert sorted(manifest.files) == ["a.txt", "deep/b.txt"]
    assert list(tree(out)) == ["a.txt", "deep", "deep/b.txt", MANIFEST]
    assert list(tree(out.parent / ".work")) == ["out.lock"]


@pytest.mark.parametrize(
    ("linked", "older", "written", "fault"),
    [
        (False, None, ["thesis.tex"], "no artefact"),
        (False, None, ["."], "no artefact"),  # a file in place of the folder
        (True, None, [], "no artefact"),  # a broken link
        (True, None, ["thesis.tex"], "no artefact"),
        (False, recipe(kind="lookup"), [], "found lookup d"),
        (False, recipe(name="e", size=2), [], "found batches e"),
        (False, recipe(), [MANIFEST], "not a manifest"),
        (False, recipe(size=2), ["notes.txt"], "notes.txt"),
        (False, recipe(size=2), ["deep/notes.txt"], "deep/notes.txt"),
        (False, recipe(), ["a.txt", "notes.txt"], "notes.txt"),  # in a damaged artefact
    ],
)
def test_anything_else_is_refused_and_unchanged(
    linked: bool, older: Recipe | None, written: list[str], fault: str, out: Path, tmp_path: Path
) -> None:
    place = tmp_path / "linked" if linked else out
    if linked:
        out.symlink_to(place)
    if older:
        build(place, older)
    for name in written:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(CheckError) as caught:
        build(out, recipe(never))
    assert fault in caught.value.problem
    assert caught.value.where == str(out)
    assert tree(tmp_path) == before


def test_a_path_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (".", "..", "deep/.."):
        with pytest.raises(UsageError):
            build(Path(path), recipe(never))
    assert tree(tmp_path) == {}


def test_notes_written_during_a_build_stay(out: Path) -> None:
    def fill(work: Work) -> None:
        (out / "notes.txt").write_text("mine")

    build(out, recipe())
    with pytest.raises(CheckError, match=r"notes\.txt"):
        build(out, recipe(fill, size=2))
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("size", [1, 2])
def test_a_linked_folder_is_replaced_and_its_target_stays(size: int, tmp_path: Path) -> None:
    """Check a link, as DVC makes to its cache: a damaged artefact behind it is rebuilt, and its files are not moved."""
    cache, out = tmp_path / "cache", tmp_path / "labels" / "out"
    build(cache, recipe(size=size))
    (cache / "a.txt").write_text("longer")
    out.parent.mkdir()
    out.symlink_to(cache)
    before = tree(cache)
    assert build(out, recipe())[1]
    assert not out.is_symlink()
    open_artefact(out, "batches")
    assert tree(cache) == before
    assert list(tree(out.parent / ".work")) == ["out.lock"]


def test_any_changed_byte_of_a_manifest_is_refused_with_its_path(out: Path) -> None:
    build(out, recipe())
    path = out / MANIFEST
    body, draw = path.read_bytes(), random.Random(7)
    places = [draw.randrange(len(body)) for _ in range(100)]
    damaged = [body[:at] + bytes([body[at] ^ 1 << draw.randrange(8)]) + body[at + 1 :] for at in places]
    for content in [*damaged, body[:-10], body + b"\n", b"", b"[]", json.dumps(json.loads(body)).encode()]:
        path.write_bytes(content)
        with pytest.raises(CheckError) as caught:
            read_manifest(out)
        assert caught.value.where == str(path)


def test_a_manifest_of_another_kind_or_format_or_with_files_outside_is_refused(out: Path, tmp_path: Path) -> None:
    manifest, _ = build(out, recipe())
    with pytest.raises(CheckError, match="expected corpus"):
        open_artefact(out, "corpus")
    for name in ("../victim.txt", str(tmp_path / "victim.txt"), "deep/../../victim.txt", "deep//b.txt", "", "a\0.txt"):
        (out / MANIFEST).write_text(replace(manifest, files={name: manifest.files[FILES[0]]}).to_json())
        with pytest.raises(CheckError, match=r"manifest.json: .*outside its folder"):
            read_manifest(out)
    (out / MANIFEST).write_text(replace(manifest, format=99).to_json())
    with pytest.raises(CheckError, match="format 99"):
        read_manifest(out)


@pytest.mark.parametrize("place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.touch()])
def test_a_file_without_an_end_is_refused_unread(place: Callable[[Path], None], out: Path, tmp_path: Path) -> None:
    build(out, recipe())
    (out / MANIFEST).unlink()
    place(out / MANIFEST)
    if (out / MANIFEST).is_file():
        os.truncate(out / MANIFEST, 20 << 30)  # no block of it is on disk
    else:
        with pytest.raises(OSError, match="not a regular file"):
            sha256_file(out / MANIFEST)
    with pytest.raises(CheckError, match=rf"{MANIFEST}: (not a regular file|more than)"):
        read_manifest(out)
    with pytest.raises(CheckError, match="found something else"):
        build(out, recipe())


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remember the hashes of files that are some hundredths of a second old, in the returned folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_SETTLED", 0.02)
    return tmp_path / "cache/relabel/sha256"


@pytest.mark.usefixtures("remembered")
def test_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    read, path = list[str](), tmp_path / "a.bin"

    def digest(path: Path) -> str:
        read.append(path.read_text())
        return hashlib.sha256(b"of " + path.read_bytes()).hexdigest()

    path.write_text("one")
    time.sleep(0.1)
    assert len({input_sha256(path, digest, "text") for _ in range(2)}) == 1
    state = path.stat()
    path.write_text("two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert input_sha256(path, digest, "text") == hashlib.sha256(b"of two").hexdigest()
    assert read == ["one", "two"] or files._is_in_memory(path)
    assert input_sha256(path) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("memory", [False, True])
def test_a_file_that_is_filled_through_an_open_map_is_hashed_again(memory: bool, tmp_path: Path) -> None:
    if memory and not Path("/dev/shm").is_dir():
        pytest.skip("no file system in memory")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if memory else tmp_path) as inside:
        vectors = np.memmap(Path(inside, "v.bin"), np.float32, "w+", shape=(10, 1024))
        for value in (1, 2, 3):
            vectors[:] = value
            time.sleep(0.1)
            for _ in range(2):
                assert input_sha256(Path(inside, "v.bin")) == hashlib.sha256(vectors.tobytes()).hexdigest()


@pytest.mark.parametrize("damage", [lambda line: line[:-20], lambda line: line[:-1] + "z", lambda line: "x" * 100])
def test_a_damaged_memory_of_hashes_is_not_believed(
    damage: Callable[[str], str], remembered: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.bin").write_text("one")
    time.sleep(0.1)
    for _ in range(3):
        assert input_sha256(tmp_path / "a.bin") == hashlib.sha256(b"one").hexdigest()
        for known in remembered.glob("*"):
            known.write_text(damage(known.read_text()))
