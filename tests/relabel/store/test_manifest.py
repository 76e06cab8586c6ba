"""Contract: damage is an error of its own, and values of an artefact that was rebuilt with other parameters reach no
other artefact."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources import cosine
from relabel.stages import Project
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, Spec, is_replaced, read_artefact, refuse_replaced
from relabel.store.workdir import Work


def make(out: Path, value: int, shards: int = 3) -> Manifest:
    """Build an artefact whose shards all hold one value."""

    def fill(work: Work) -> None:
        for i in range(shards):
            work.part(i, shards, lambda: pa.table({"value": [value]}))
        work.facts["value"] = value

    return build(out, Spec("encoding", "x", {"value": value}, {}), fill)[0]


def test_damage_is_not_mistaken_for_a_rebuild(tmp_path: Path) -> None:
    manifest = make(tmp_path / "x", 1)
    (tmp_path / "x" / manifest.parts[1]).write_bytes(b"damaged")
    with pytest.raises(CheckError, match=r"expected .* bytes, found 7"):
        read_artefact(tmp_path / "x", "encoding", lambda m: m)
    make(tmp_path / "y", 1)
    with pytest.raises(ZeroDivisionError):
        read_artefact(tmp_path / "y", "encoding", lambda m: 1 // 0)
    assert not is_replaced(tmp_path / "y", make(tmp_path / "y", 1))
    shutil.rmtree(tmp_path / "y")
    assert is_replaced(tmp_path / "y", manifest)
    with pytest.raises(MissingError):
        read_artefact(tmp_path / "y", "encoding", lambda m: m)


def test_values_of_another_build_are_refused(tmp_path: Path) -> None:
    manifest = make(tmp_path / "x", 1)
    shutil.rmtree(tmp_path / "x")
    make(tmp_path / "x", 1)
    refuse_replaced(tmp_path / "x", manifest)  # rebuilt with the same values
    make(tmp_path / "x", 2)
    with pytest.raises(CheckError, match="rebuilt by another run after it was opened"):
        refuse_replaced(tmp_path / "x", manifest)


def project(folder: Path, *settings: str) -> Project:
    sources = "sources={given: {source: cbow, vectors: %s, tokenizer: lower_split}}" % (folder / "words.txt")
    config = load_config(None, ["ingest.tokenizer=none", "encode.rows_per_shard=4", sources, *settings])
    project_of = Project(config, Runtime(data=folder / "data", threads=1), folder / "labels")
    captions = [Caption(f"x:{i}", f"x:{i // 2}", "train", f"a{i % 5} b") for i in range(12)]
    project_of.__dict__["corpus"] = Corpus.from_captions(captions)
    return project_of


def write_words(folder: Path, scale: float) -> None:
    words = [f"a{i} {i + 1} {scale} 1" for i in range(5)]
    (folder / "words.txt").write_text("\n".join([*words, f"b 1 0 {scale}"]) + "\n")


def test_a_lookup_of_a_rebuilt_encoding_is_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relabel_train.lookup import open_lookup

    write_words(tmp_path, 1.0)
    old = project(tmp_path)
    stages.encode(old, "given", "train").run()
    stages.export_lookup(old, "given", "train").run()
    out = old.layout.lookup("train", "given")
    expected = open_lookup(out).block(range(12))
    shutil.rmtree(out)
    real = cosine.write_vectors

    def rebuilt(*args: Any) -> None:
        write_words(tmp_path, 2.0)
        stages.encode(project(tmp_path), "given", "train").run()
        real(*args)

    monkeypatch.setattr(cosine, "write_vectors", rebuilt)
    with pytest.raises(CheckError, match="rebuilt by another run after it was opened"):
        stages.export_lookup(old, "given", "train").run()
    monkeypatch.undo()
    assert not out.exists()
    write_words(tmp_path, 1.0)
    again = project(tmp_path)
    stages.encode(again, "given", "train").run()
    stages.export_lookup(again, "given", "train").run()  # with the fingerprint of the refused run
    assert (open_lookup(out).block(range(12)) == expected).all()
