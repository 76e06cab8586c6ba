"""Contract: an artefact is complete or absent, is reused only under the same fingerprint without reading its files,
and resumes file by file. Rows that failed are tried again on request only. A reader names a file that is missing or of
another size. One run at a time works on an artefact; a second one waits.

Contract: a manifest is read exactly as it was written, or refused with its path. It names no file outside its
folder.

Contract: the hash of an input file is remembered between processes, and computed again after any change of the file,
also one that keeps its size and time of modification.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relabel.core.errors import CheckError
from relabel.store import artefact as artefacts
from relabel.store import files, workdir
from relabel.store.artefact import Recipe, build
from relabel.store.files import input_sha256
from relabel.store.manifest import MANIFEST, Manifest, open_artefact, read_manifest
from relabel.store.workdir import Work, part_name, part_ranges

ROWS = range(3, 10)


def recipe(fill: Callable[[Work], None], corpus: str = "abc", **config: object) -> Recipe:
    return Recipe("encoding", "demo", lambda: {"size": 3, **config}, {"corpus": corpus}, fill)


def filler(made: list[int], stop_at: int | None = None) -> Callable[[Work], None]:
    def fill(work: Work) -> None:
        parts = part_ranges(ROWS, 3)
        for i, rows in enumerate(parts):

            def make(i: int = i, rows: range = rows) -> pa.Table:
                if i == stop_at:
                    raise KeyboardInterrupt
                made.append(i)
                return pa.table({"row": pa.array(rows, pa.int32())})

            work.table(part_name(i, len(parts)), make)
        work.metadata["rows"] = [ROWS.start, ROWS.stop]

    return fill


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != MANIFEST}


def never(*_: object) -> Any:
    raise AssertionError("called")


def test_the_second_build_reads_no_file_of_the_artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, _ = build(tmp_path / "out", recipe(filler([])))
    for name in manifest.files:
        (tmp_path / "out" / name).chmod(0)
    for module in (artefacts, workdir):
        monkeypatch.setattr(module, "sha256_file", never, raising=module is workdir)
    again, built = build(tmp_path / "out", recipe(never))
    assert (again, built) == (manifest, False)
    assert open_artefact(tmp_path / "out", "encoding") == manifest


def test_another_parameter_or_input_is_a_new_build(tmp_path: Path) -> None:
    build(tmp_path / "out", recipe(filler([])))
    for change in ({"sigma": 6.0}, {"corpus": "abd"}):
        files_made: list[int] = []
        other = recipe(filler(files_made), **change)
        manifest, built = build(tmp_path / "out", other)
        assert (built, files_made) == (True, [0, 1, 2])
        assert manifest.fingerprint == other.spec.fingerprint


def test_an_interrupted_build_keeps_the_old_artefact_and_resumes(tmp_path: Path) -> None:
    build(tmp_path / "out", recipe(filler([])))
    old = bytes_of(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "out", recipe(filler([], stop_at=2), new=1))
    assert bytes_of(tmp_path / "out") == old
    files_made: list[int] = []
    build(tmp_path / "out", recipe(filler(files_made), new=1))
    assert files_made == [2]
    build(tmp_path / "whole", recipe(filler([]), new=1))
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_a_file_of_another_size_is_refused_by_name_and_rebuilt(tmp_path: Path, damage: str) -> None:
    out = tmp_path / "out"
    manifest, _ = build(out, recipe(filler([])))
    victim = out / manifest.parts[1]
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(CheckError, match=victim.name):
        open_artefact(out, "encoding")
    assert build(out, recipe(filler([])))[1]
    assert open_artefact(out, "encoding").files == manifest.files


@pytest.mark.parametrize("rows", [0, 2])
def test_failed_rows_are_built_again_on_request_only(tmp_path: Path, rows: int) -> None:
    def fill(work: Work) -> None:
        filler([])(work)
        work.metadata["failed"] = {"rows": rows, "sha256": "abc"}

    out = tmp_path / "out"
    manifest, _ = build(out, recipe(fill))
    assert manifest.identity == (f"{manifest.fingerprint} without abc" if rows else manifest.fingerprint)
    assert not build(out, recipe(never))[1]
    assert build(out, recipe(fill), retry=True)[1] == bool(rows)
    mended, built = build(out, recipe(filler([])), retry=True)
    assert built == bool(rows)
    assert mended.identity == manifest.fingerprint


def test_a_reader_refuses_other_kinds_and_formats(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(out, recipe(filler([])))
    with pytest.raises(CheckError, match="expected corpus"):
        open_artefact(out, "corpus")
    body = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps(body | {"format": 99}))
    with pytest.raises(CheckError, match="format 99"):
        open_artefact(out, "encoding")


def test_of_two_builds_at_once_one_builds_and_the_other_finds_it(tmp_path: Path) -> None:
    out, begun, made, results = tmp_path / "out", threading.Event(), list[int](), list[bool]()

    def slow(work: Work) -> None:
        begun.set()
        thread.join(0.3)  # the other build waits for the lock by now
        filler(made)(work)

    thread = threading.Thread(target=lambda: results.append(begun.wait(20) and build(out, recipe(filler(made)))[1]))
    thread.start()
    assert build(out, recipe(slow))[1]
    thread.join(20)
    assert results == [False]
    assert made == [0, 1, 2]


def fill(work: Work) -> None:
    work.file("deep/a.txt", lambda path: path.write_text("a"))
    work.metadata |= {"rows": [3, 10], "nested": {"2": "ü", "10": None}}


def make(out: Path) -> Manifest:
    return build(out, Recipe("encoding", "demo", lambda: {"sizes": (3, 4)}, {"corpus": "abc"}, fill))[0]


def test_any_changed_byte_is_refused_with_the_path(tmp_path: Path) -> None:
    make(tmp_path / "out")
    path = tmp_path / "out" / MANIFEST
    body = path.read_bytes()
    draw = random.Random(7)
    places = [draw.randrange(len(body)) for _ in range(100)]
    damaged = [body[:at] + bytes([body[at] ^ 1 << draw.randrange(8)]) + body[at + 1 :] for at in places]
    for content in [*damaged, body[:-10], body + b"\n", b"", b"[]", json.dumps(json.loads(body)).encode()]:
        path.write_bytes(content)
        with pytest.raises(CheckError) as caught:
            read_manifest(tmp_path / "out")
        assert caught.value.where == str(path)


def test_a_manifest_that_names_files_outside_its_folder_is_refused(tmp_path: Path) -> None:
    manifest = make(tmp_path / "out")
    for name in ("../victim.txt", str(tmp_path / "victim.txt"), "deep/../../victim.txt"):
        manifest.files[name] = manifest.files["deep/a.txt"]
        (tmp_path / "out" / MANIFEST).write_text(manifest.to_json())
        with pytest.raises(CheckError, match="outside its folder"):
            read_manifest(tmp_path / "out")
        del manifest.files[name]


def test_a_changed_file_is_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_SETTLED", -1.0)
    read, path = [], tmp_path / "a.bin"
    monkeypatch.setattr(files, "sha256_file", lambda p: read.append(p) or hashlib.sha256(p.read_bytes()).hexdigest())
    path.write_bytes(b"one")
    for _ in range(2):
        assert input_sha256(path) == hashlib.sha256(b"one").hexdigest()
    assert len(read) == 1
    state = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert input_sha256(path) == hashlib.sha256(b"two").hexdigest()
