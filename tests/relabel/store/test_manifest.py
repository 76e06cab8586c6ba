"""Contract: a manifest is read exactly as it was written, or refused with its path. It names no file outside its
folder."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from relabel.core.errors import CheckError
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel.store.workdir import Work


def fill(work: Work) -> None:
    work.file("deep/a.txt", lambda path: path.write_text("a"))
    work.metadata |= {"rows": [3, 10], "nested": {"2": "ü", "10": None}}


def make(out: Path) -> Manifest:
    return build(out, Recipe("encoding", "demo", lambda: {"sizes": (3, 4)}, {"corpus": "abc"}, fill))[0]


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = make(tmp_path / "out")
    read = read_manifest(tmp_path / "out", "encoding")
    assert read.to_json() == manifest.to_json() == (tmp_path / "out" / MANIFEST).read_text()
    assert (read.config, read.metadata) == ({"sizes": [3, 4]}, manifest.metadata)


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
