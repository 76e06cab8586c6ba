"""Contract: a side-car has the shards, keys and order of the image shards, joined to captions by id. Keys without a
label are refused, or marked and counted. Captions of img2dataset join other shards of it by URL or sha256. webdataset
reads it. The drills hold that it is resumed, and verified."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.golden.hostile import _tar as tar_of
from tests.relabel.export.formats import in_folder, with_captions, with_params

from relabel import stages
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.corpus.build import Caption
from relabel.stages import Session, open_corpus
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.webdataset import open_sidecar


def write_images(folder: Path, keys: list[str]) -> Path:
    """Write image shards of 25 keys, each with an image and a text."""
    folder.mkdir()
    for i, start in enumerate(range(0, len(keys), 25)):
        names = (f"{key}.{ending}" for key in keys[start : start + 25] for ending in ("jpg", "txt"))
        (folder / f"{i:05d}.tar").write_bytes(tar_of(*((name, b"\xff" * 700) for name in names)))
    return folder


@pytest.fixture
def session(small_project: Session, tmp_path: Path) -> Session:
    return in_folder(small_project, tmp_path / "labels", "neighbours", "exports/all/lookup")


@pytest.fixture
def keys(session: Session) -> list[str]:
    """Image ids without their namespace, in random order."""
    ids = [name.removeprefix("coco:") for name in open_corpus(session).image_ids]
    return [ids[i] for i in np.random.default_rng(1).permutation(len(ids))]


def exported(session: Session, shards: Path | None, label: str = "cbow", **params: Any) -> tuple[Path, Any]:
    """Export a side-car in place of an earlier one; return its folder and the metadata of its manifest."""
    given = params if shards is None else params | {"shards": str(shards)}
    other = with_params(replace(session, runtime=replace(session.runtime, rebuild=True)), "wds", **given)
    job = stages.wds_export(other, label, "all")
    return job.out, job.run()[0].metadata


CASES = [("cbow", "float16", "{00000..00002}.tar"), ("cbow", "float32", "0000{2,0,1}.tar"), ("cider", "float16", "")]


@pytest.mark.parametrize(("label", "dtype", "names"), CASES)
def test_labels_follow_the_image_shards_by_id(
    session: Session, keys: list[str], tmp_path: Path, label: str, dtype: str, names: str
) -> None:
    out, metadata = exported(session, write_images(tmp_path / "images", keys) / names, label, dtype=dtype, k=3)
    lookup, corpus = open_lookup(session.folder("exports", "all", "lookup", label)), open_corpus(session)
    assert (metadata["keys"], metadata["captions"], metadata["missing"]) == (60, len(corpus), 0)
    sidecar = open_sidecar(out)
    assert sidecar.about.complete
    # The order is that of the image shards.
    assert [key for i in range(3) for key in sidecar.shard(f"0000{i}.tar").keys] == keys
    for i, key in enumerate(keys):
        labels: Any = sidecar.find(key, f"images/{i // 25:05d}.tar", neighbours=True)
        image = corpus.image_of[f"coco:{key}"]
        rows = list(range(corpus.indptr[image], corpus.indptr[image + 1]))
        assert (labels.image_id, labels.image_row, labels.caption_rows.tolist()) == (f"coco:{key}", image, rows)
        assert labels.caption_ids == [corpus.caption_ids[row] for row in rows]
        if label == "cbow":
            np.testing.assert_array_equal(labels.vectors, lookup.arrays["vectors"][rows].astype(dtype))
        near, scores, _ = lookup.neighbours(rows, 3)
        assert labels.neighbour_ids == [lookup.caption_ids(row) for row in near]
        np.testing.assert_array_equal(labels.neighbour_scores, scores)
    assert (metadata["dtype"], labels.vectors is None) == ((dtype, False) if label == "cbow" else (None, True))


def test_names_of_shards_stay_below_the_sidecar(
    session: Session, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path / "images", keys)
    (tmp_path / "images" / "in").mkdir()
    (tmp_path / "images/00001.tar").rename(tmp_path / "images/in/00001.tar")
    monkeypatch.chdir(tmp_path)
    before = {path.name for path in tmp_path.parent.rglob("*.tar")}
    out, _ = exported(session, Path("images/in/../../images/{in/../00000,in/00001,../images/00002}.tar"))
    assert [*open_sidecar(out).about.shards] == ["00000.tar", "00002.tar", "in/00001.tar"]
    assert {path.relative_to(out).as_posix() for path in out.rglob("*.tar")} == {*open_sidecar(out).about.shards}
    assert {path.name for path in tmp_path.parent.rglob("*.tar")} == before


def test_missing_keys_are_refused_or_marked_and_counted(
    session: Session, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A caption without an encoding must be no vector.
    corpus = open_corpus(session)
    failed = corpus.image == corpus.image_of[f"coco:{keys[0]}"]
    monkeypatch.setattr(Lookup, "failed", failed)
    images = write_images(tmp_path / "images", [*keys, "unknown"])
    with pytest.raises(CheckError, match=rf"2 of 61 keys .* {keys[0]} \(00000.tar\), unknown \(00002.tar\)"):
        exported(session, images)
    out, metadata = exported(session, images, allow_missing=True)
    sidecar = open_sidecar(out)
    assert (metadata["missing"], metadata["captions"]) == (2, len(failed) - failed.sum())
    assert [entry.missing for entry in sidecar.about.shards.values()] == [1, 0, 1]
    assert sidecar.find("unknown", "00002.tar") is sidecar.find(keys[0], "00000.tar") is None
    assert sidecar.shard("00002.tar").keys[-1] == "unknown"  # the order of the image shard stays
    assert sidecar.find(keys[3], "00000.tar") is not None


def test_webdataset_reads_both_layouts_without_pickle(
    session: Session, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wds = pytest.importorskip("webdataset")
    monkeypatch.setattr("webdataset.utils.enforce_security", True)
    images, read = write_images(tmp_path / "images", [*keys, "unknown"]), {}
    for layout in ("arrays", "samples"):
        out, _ = exported(session, images, layout=layout, allow_missing=True, k=2)
        read[layout] = list(wds.WebDataset(sorted(map(str, out.glob("*.tar"))), shardshuffle=False).decode())
    assert [(one["__key__"], one["keys.json"]) for one in read["arrays"][:1]] == [("labels", keys[:25])]
    *samples, unknown = read["samples"]
    assert [sample["__key__"] for sample in samples] == keys
    vectors = open_lookup(session.folder("exports", "all", "lookup", "cbow")).arrays["vectors"]
    for sample in samples:
        labels = sample["labels.json"]
        assert labels["image_id"] == f"coco:{sample['__key__']}"
        np.testing.assert_array_equal(sample["vectors.npy"], vectors[labels["caption_rows"]].astype("<f2"))
        assert {len(row) for row in labels["neighbour_ids"] + labels["neighbour_scores"]} == {2}
    assert (unknown["labels.json"], "vectors.npy" in unknown) == ({"missing": True}, False)
    with pytest.raises(ValueError, match=r"a side-car of layout samples.*--layout arrays"):
        open_sidecar(out)


def test_bad_shards_and_missing_inputs_are_named(session: Session, keys: list[str], tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", keys)
    with pytest.raises(MissingError, match=r"00003.tar"):
        exported(session, images / "{00000..00003}.tar")
    damaged = {"not a complete tar file": b"no tar at all" * 100, "the shard has no samples": bytes(10240)}
    for fault, content in damaged.items():
        (images / "00002.tar").write_bytes(content)
        with pytest.raises(CheckError, match=f"00002.tar: {fault}"):
            exported(session, images)
    with pytest.raises(CheckError, match=f"duplicate key {keys[0]} in the shard"):
        exported(session, write_images(tmp_path / "twice", [keys[0], keys[1], keys[0]]))
    with pytest.raises(UsageError, match="the keys are the ids of captions"):
        exported(session, None, keys="image")


def test_a_missing_lookup_and_a_key_with_a_dot_are_named(small_project: Session, tmp_path: Path) -> None:
    session = with_captions(small_project, tmp_path, [Caption("7.jpg#0", "7.jpg", "test", "a dog")])
    with pytest.raises(MissingError, match="relabel export lookup --label cbow --split all"):
        exported(session, None)
    stages.encoding(session, "cbow", "all").run()
    stages.lookup_export(session, "cbow", "all").run()
    with pytest.raises(UsageError, match=r"the key 7\.jpg#0 "):
        exported(session, None, layout="samples")


@pytest.mark.parametrize("join", ["key", "url", "sha256"])
def test_captions_and_shards_of_two_downloads_join_by_what_they_share(
    small_project: Session, tmp_path: Path, join: str
) -> None:
    names = [{"key": f"{i:05d}", "url": f"https://x.org/{i}.jpg?w=1", "sha256": f"{i:064x}"} for i in range(7)]
    rows = [{**name, "caption": f"a dog {i}", "status": "success"} for i, name in enumerate(names)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "captions.parquet")
    given = {"path": tmp_path / "captions.parquet", "format": "img2dataset", "image_id_column": join}
    config = small_project.config.model_copy(update={"ingest": small_project.config.ingest.model_copy(update=given)})
    session = replace(small_project, config=config, labels=tmp_path / "labels")
    stages.ingestion(session).run()
    for make in (stages.encoding, stages.lookup_export):
        make(session, "cbow", "all").run()
    # The other download has another order, and its keys count from there.
    order = [4, 2, 6, 0]
    samples = [{**names[i], "key": names[i]["key"] if join == "key" else f"{n:05d}"} for n, i in enumerate(order)]
    write_samples(tmp_path / "images.tar", samples)
    for params in ({"join": join}, {}):  # given, or as ingested
        out, metadata = exported(session, tmp_path / "{images}.tar", **params)
        assert (metadata["keys"], metadata["missing"]) == (4, 0)
        for sample, i in zip(samples, order, strict=True):
            labels: Any = open_sidecar(out).find(sample["key"], "images.tar")
            assert labels.caption_ids == [f"coco:{names[i][join]}#0"]
    write_samples(tmp_path / "images.tar", [*samples, {name: f"unknown-{name}" for name in names[0]}])
    with pytest.raises(CheckError, match=r"1 of 5 keys .* unknown-key \(.*images.tar\)") as error:
        exported(session, tmp_path / "{images}.tar")
    assert (f"coco:unknown-{join}" in str(error.value)) == (join != "key")


def write_samples(path: Path, samples: list[dict[str, str]]) -> None:
    """Write a shard as img2dataset does: an image and a JSON per key."""
    pairs = ([(f"{one['key']}.jpg", b"\xff"), (f"{one['key']}.json", json.dumps(one).encode())] for one in samples)
    path.write_bytes(tar_of(*chain.from_iterable(pairs)))
