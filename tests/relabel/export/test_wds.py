"""Contract: a side-car has the shards, keys and order of the image shards, joined to captions by id. Keys without a
label are refused, or marked and counted. Its bytes are deterministic, resumable and verified. webdataset reads it."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.export.wds.build import SideCarWork
from relabel.export.wds.keys import expand_shards
from relabel.stages import Project
from relabel.stages.verify import verify
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.webdataset import open_sidecar


def write_images(folder: Path, keys: list[str], per_shard: int = 25) -> Path:
    """Write image shards with the given keys."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, start in enumerate(range(0, len(keys), per_shard)):
        with tarfile.open(folder / f"{i:05d}.tar", "w") as tar:
            for key in keys[start : start + per_shard]:
                for ending, body in (("jpg", b"\xff" * 700), ("txt", b"any text")):
                    member = tarfile.TarInfo(f"{key}.{ending}")
                    member.size = len(body)
                    tar.addfile(member, io.BytesIO(body))
    return folder


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    shutil.copytree(small_project.labels, tmp_path / "labels")
    return replace(small_project, labels=tmp_path / "labels")


@pytest.fixture
def keys(project: Project) -> list[str]:
    """Image ids without their namespace, in random order."""
    ids = [name.removeprefix("coco:") for name in project.corpus.image_ids]
    return [ids[i] for i in np.random.default_rng(1).permutation(len(ids))]


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.name != "manifest.json"}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_labels_follow_the_image_shards_by_id(project: Project, keys: list[str], tmp_path: Path, dtype: str) -> None:
    images = write_images(tmp_path / "images", keys)
    job = stages.export_wds(with_params(project, "wds", shards=str(images), dtype=dtype, k=3), "cbow", "all")
    manifest, _ = job.run()
    lookup, corpus = open_lookup(project.folder("exports", "all", "lookup", "cbow")), project.corpus
    assert manifest.facts["missing"] == 0
    assert (manifest.facts["keys"], manifest.facts["captions"]) == (60, len(corpus))
    sidecar = open_sidecar(job.out)
    assert sidecar.about.complete
    assert [entry.keys for entry in sidecar.about.shards.values()] == [25, 25, 10]
    for i, key in enumerate(keys):
        shard = sidecar.shard(f"{i // 25:05d}.tar")
        assert shard.keys[i % 25] == key  # the order of the image shard
        labels = sidecar.find(key, f"{images}/{i // 25:05d}.tar", neighbours=True)
        assert labels is not None
        image = corpus.image_of[f"coco:{key}"]
        rows = range(corpus.indptr[image], corpus.indptr[image + 1])
        assert (labels.image_id, labels.image_row) == (f"coco:{key}", image)
        assert labels.caption_ids == [corpus.caption_ids[row] for row in rows]
        assert labels.caption_rows.tolist() == list(rows)
        expected = lookup.arrays["vectors"][list(rows)].astype(dtype)
        np.testing.assert_array_equal(labels.vectors, expected)
        near, scores, _ = lookup.neighbours(list(rows), 3)
        assert labels.neighbour_ids == [[corpus.caption_ids[j] for j in row] for row in near]
        np.testing.assert_array_equal(labels.neighbour_scores, scores)


def test_a_label_without_vectors_has_rows_and_neighbours(project: Project, keys: list[str], tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", keys)
    job = stages.export_wds(with_params(project, "wds", shards=str(images), k=2), "cider", "all")
    assert job.run()[0].facts["dtype"] is None
    labels = open_sidecar(job.out).find(keys[0], "00000.tar", neighbours=True)
    assert labels is not None
    assert labels.vectors is None
    assert [len(row) for row in labels.neighbour_ids or ()] == [2] * len(labels.caption_ids)


def test_bytes_are_deterministic_resumable_and_verified(
    project: Project, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_images(tmp_path / "images", keys)
    job = stages.export_wds(with_params(project, "wds", shards=str(images)), "cbow", "all")
    job.run()
    first = digests(job.out)
    assert not job.run()[1]
    assert verify([job.out]).problems == []
    shutil.rmtree(job.out)
    files_made: list[str] = []
    labels_of = SideCarWork._labels

    def interrupted(self: Any, shard: Any) -> Any:
        files_made.append(shard.keys[0].as_py())
        if len(files_made) == 2:
            raise KeyboardInterrupt
        return labels_of(self, shard)

    monkeypatch.setattr(SideCarWork, "_labels", interrupted)
    with pytest.raises(KeyboardInterrupt):
        job.run()
    assert not job.out.exists()
    stages.export_wds(with_params(project, "wds", shards=str(images)), "cbow", "all").run()
    assert files_made == [keys[0], keys[25], keys[25], keys[50]]  # the first shard is not made again
    assert digests(job.out) == first
    damaged = job.out / "00001.tar"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    (problem,) = verify([job.out]).problems
    assert (problem.fault, problem.file) == ("damaged", str(damaged))


def test_missing_keys_are_refused_or_marked_and_counted(project: Project, keys: list[str], tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", [*keys[:3], "unknown1", *keys[3:], "unknown2"])
    params = with_params(project, "wds", shards=str(images))
    with pytest.raises(
        CheckError, match=r"2 of 62 keys have no caption .* unknown1 \(00000.tar\), unknown2 \(00002.tar\)"
    ):
        stages.export_wds(params, "cbow", "all").run()
    assert not project.folder("exports", "all", "wds", "cbow").exists()
    job = stages.export_wds(with_params(project, "wds", shards=str(images), allow_missing=True), "cbow", "all")
    manifest, _ = job.run()
    sidecar = open_sidecar(job.out)
    assert manifest.facts["missing"] == 2
    assert [entry.missing for entry in sidecar.about.shards.values()] == [1, 0, 1]
    assert sidecar.find("unknown1", "00000.tar") is None
    assert "unknown1" in sidecar.shard("00000.tar").keys  # the order of the image shard stays
    assert sidecar.find(keys[3], "00000.tar") is not None


def test_a_caption_without_an_encoding_is_no_vector(
    project: Project, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_images(tmp_path / "images", keys)
    corpus = project.corpus
    failed = np.zeros(len(corpus), bool)
    image = corpus.image_of[f"coco:{keys[0]}"]
    failed[corpus.indptr[image] : corpus.indptr[image + 1]] = True
    monkeypatch.setattr(Lookup, "failed", failed)
    with pytest.raises(CheckError, match="1 of 60 keys have no caption with an encoding"):
        stages.export_wds(with_params(project, "wds", shards=str(images)), "cbow", "all").run()
    job = stages.export_wds(with_params(project, "wds", shards=str(images), allow_missing=True), "cbow", "all")
    manifest, _ = job.run()
    assert (manifest.facts["missing"], manifest.facts["captions"]) == (1, len(corpus) - failed.sum())
    assert open_sidecar(job.out).find(keys[0], "00000.tar") is None


def test_without_image_shards_keys_are_caption_ids(project: Project) -> None:
    corpus = project.corpus
    job = stages.export_wds(with_params(project, "wds", captions_per_shard=100), "cbow", "all")
    manifest, _ = job.run()
    sidecar = open_sidecar(job.out)
    assert manifest.facts["shards"] == len(sidecar.about.shards) == -(-len(corpus) // 100)
    assert not sidecar.about.complete
    for row in (0, 99, 100, len(corpus) - 1):
        labels = sidecar.find(corpus.caption_ids[row].removeprefix("coco:"))  # by the index of all keys
        assert labels is not None
        assert (labels.caption_ids, labels.caption_rows.tolist()) == ([corpus.caption_ids[row]], [row])
    assert sidecar.find("no such key") is None


def test_samples_are_read_by_webdataset_without_pickle(
    project: Project, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wds = pytest.importorskip("webdataset")
    monkeypatch.setattr("webdataset.utils.enforce_security", True)
    images = write_images(tmp_path / "images", [*keys, "unknown"])
    params = with_params(project, "wds", shards=str(images), layout="samples", allow_missing=True, k=2)
    job = stages.export_wds(params, "cbow", "all")
    job.run()
    shards = sorted(map(str, job.out.glob("*.tar")))
    samples = list(wds.WebDataset(shards, shardshuffle=False).decode())
    assert [sample["__key__"] for sample in samples] == [*keys, "unknown"]
    vectors = open_lookup(project.folder("exports", "all", "lookup", "cbow")).arrays["vectors"]
    for sample in samples[:-1]:
        labels = sample["labels.json"]
        assert labels["image_id"] == f"coco:{sample['__key__']}"
        np.testing.assert_array_equal(sample["vectors.npy"], vectors[labels["caption_rows"]].astype("<f2"))
        assert all(
            len(ids) == len(scores) == 2
            for ids, scores in zip(labels["neighbour_ids"], labels["neighbour_scores"], strict=True)
        )
    assert (samples[-1]["labels.json"], "vectors.npy" in samples[-1]) == ({"missing": True}, False)
    with pytest.raises(ValueError, match=r"a side-car of layout samples.*--layout arrays"):
        open_sidecar(job.out)


def test_a_shard_of_arrays_is_one_sample_of_webdataset(project: Project, keys: list[str], tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    images = write_images(tmp_path / "images", keys)
    job = stages.export_wds(with_params(project, "wds", shards=str(images)), "cbow", "all")
    job.run()
    samples = list(wds.WebDataset([str(job.out / "00000.tar")], shardshuffle=False).decode())
    assert [sample["__key__"] for sample in samples] == ["labels"]
    assert samples[0]["keys.json"] == keys[:25]


def test_keys_after_the_name_of_their_shard_and_ids_in_json(project: Project, tmp_path: Path) -> None:
    ids = [name.removeprefix("coco:") for name in project.corpus.image_ids]
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i, name in enumerate(ids[:4]):
            body = json.dumps({"image_id": name}).encode()
            member = tarfile.TarInfo(f"{i}.json")
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    params = with_params(project, "wds", shards=str(tmp_path / "a.tar"), image_id_column="image_id")
    job = stages.export_wds(params, "cbow", "all")
    job.run()
    labels = open_sidecar(job.out).find("2", "a.tar")
    assert labels is not None
    assert labels.image_id == f"coco:{ids[2]}"
    with pytest.raises(CheckError, match=r"a.tar: 0.json: no JSON object with 'cocoid'"):
        stages.export_wds(
            with_params(project, "wds", shards=str(tmp_path / "a.tar"), image_id_column="cocoid"), "cbow", "all"
        ).run()


def test_braces_are_expanded_and_bad_shards_refused(project: Project, keys: list[str], tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", keys)
    assert [p.name for p in expand_shards(f"{images}/{{00000..00002}}.tar")] == ["00000.tar", "00001.tar", "00002.tar"]
    assert [p.name for p in expand_shards(f"{images}/0000{{2,0}}.tar")] == ["00002.tar", "00000.tar"]
    assert len(expand_shards(str(images))) == 3

    def export(shards: str, **more: Any) -> None:
        stages.export_wds(with_params(project, "wds", shards=shards, **more), "cbow", "all").run()

    with pytest.raises(MissingError, match=r"00003.tar: no such file"):
        export(f"{images}/{{00000..00003}}.tar")
    (images / "00002.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(CheckError, match="not a complete tar file"):
        export(str(images))
    with tarfile.open(images / "00002.tar", "w"):
        pass
    with pytest.raises(CheckError, match="no sample in this shard"):
        export(str(images))
    write_images(tmp_path / "twice", [keys[0], keys[1], keys[0]])
    with pytest.raises(CheckError, match="comes back in the same shard"):
        export(str(tmp_path / "twice"))
    with pytest.raises(UsageError, match="the keys are the ids of captions"):
        stages.export_wds(with_params(project, "wds", keys="image"), "cbow", "all").run()
    with pytest.raises(MissingError, match=r"no lookup cbow.*relabel export lookup --label cbow --split train"):
        stages.export_wds(with_params(project, "wds", shards=str(images)), "cbow", "train").run()


def test_a_key_with_a_dot_is_refused_as_a_sample(project: Project, tmp_path: Path) -> None:
    captions = tmp_path / "captions.csv"
    captions.write_text("caption_id,image_id,split,text\n7.jpg#0,7.jpg,test,a dog\n")
    settings = ["ingest.dataset=dots", f"ingest.path={captions}", "ingest.tokenizer=none"]
    vectors = project.config.sources["cbow"].model_dump(mode="json")
    config = load_config(None, [*settings, f"sources={json.dumps({'cbow': vectors})}", "export.wds.layout=samples"])
    dots = Project(config, project.runtime, tmp_path / "labels")
    stages.ingest(dots).run()
    stages.encode(dots, "cbow", "test").run()
    stages.export_lookup(dots, "cbow", "test").run()
    with pytest.raises(UsageError, match=r"the key 7.jpg#0 has a dot"):
        stages.export_wds(dots, "cbow", "test").run()
