"""Contract: a side-car has the shards, keys and order of the image shards, joined to captions by id. Keys without a
label are refused, or marked and counted. Its bytes are deterministic, resumable and verified. webdataset reads it."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
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
    return in_folder(small_project, tmp_path / "labels", "neighbours", "exports/all/lookup")


@pytest.fixture
def keys(project: Project) -> list[str]:
    """Image ids without their namespace, in random order."""
    ids = [name.removeprefix("coco:") for name in project.corpus.image_ids]
    return [ids[i] for i in np.random.default_rng(1).permutation(len(ids))]


def exported(project: Project, images: Path | None = None, label: str = "cbow", **params: Any) -> tuple[Path, Any]:
    """Export a side-car; return its folder and the metadata of its manifest."""
    given = params if images is None else params | {"shards": str(images)}
    job = stages.export_wds(with_params(project, "wds", **given), label, "all")
    return job.out, job.run()[0].metadata


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.name != "manifest.json"}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_labels_follow_the_image_shards_by_id(project: Project, keys: list[str], tmp_path: Path, dtype: str) -> None:
    images = write_images(tmp_path / "images", keys)
    out, metadata = exported(project, images, dtype=dtype, k=3)
    lookup, corpus = open_lookup(project.folder("exports", "all", "lookup", "cbow")), project.corpus
    assert (metadata["keys"], metadata["captions"], metadata["missing"]) == (60, len(corpus), 0)
    sidecar = open_sidecar(out)
    assert sidecar.about.complete
    assert [entry.keys for entry in sidecar.about.shards.values()] == [25, 25, 10]
    for i, key in enumerate(keys):
        assert sidecar.shard(f"{i // 25:05d}.tar").keys[i % 25] == key  # the order of the image shard
        labels = sidecar.find(key, f"{images}/{i // 25:05d}.tar", neighbours=True)
        assert labels is not None
        image = corpus.image_of[f"coco:{key}"]
        rows = list(range(corpus.indptr[image], corpus.indptr[image + 1]))
        assert (labels.image_id, labels.image_row) == (f"coco:{key}", image)
        assert labels.caption_ids == [corpus.caption_ids[row] for row in rows]
        assert labels.caption_rows.tolist() == rows
        np.testing.assert_array_equal(labels.vectors, lookup.arrays["vectors"][rows].astype(dtype))
        near, scores, _ = lookup.neighbours(rows, 3)
        assert labels.neighbour_ids == [[corpus.caption_ids[j] for j in row] for row in near]
        np.testing.assert_array_equal(labels.neighbour_scores, scores)


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


def test_missing_keys_are_refused_or_marked_and_counted(
    project: Project, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A caption without an encoding must be no vector.
    corpus, image = project.corpus, project.corpus.image_of[f"coco:{keys[0]}"]
    failed = corpus.image == image
    monkeypatch.setattr(Lookup, "failed", failed)
    images = write_images(tmp_path / "images", [*keys, "unknown"])
    with pytest.raises(CheckError, match=rf"2 of 61 keys .* {keys[0]} \(00000.tar\), unknown \(00002.tar\)"):
        exported(project, images)
    assert not project.folder("exports", "all", "wds", "cbow").exists()
    out, metadata = exported(project, images, allow_missing=True)
    sidecar = open_sidecar(out)
    assert (metadata["missing"], metadata["captions"]) == (2, len(corpus) - failed.sum())
    assert [entry.missing for entry in sidecar.about.shards.values()] == [1, 0, 1]
    assert sidecar.find("unknown", "00002.tar") is sidecar.find(keys[0], "00000.tar") is None
    assert sidecar.shard("00002.tar").keys[-1] == "unknown"  # the order of the image shard stays
    assert sidecar.find(keys[3], "00000.tar") is not None


def test_webdataset_reads_both_layouts_without_pickle(
    project: Project, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wds = pytest.importorskip("webdataset")
    monkeypatch.setattr("webdataset.utils.enforce_security", True)
    images = write_images(tmp_path / "images", [*keys, "unknown"])
    params: dict[str, Any] = {"allow_missing": True, "k": 2}
    out, _ = exported(project, images, **params)
    (arrays,) = wds.WebDataset([str(out / "00000.tar")], shardshuffle=False).decode()
    assert (arrays["__key__"], arrays["keys.json"]) == ("labels", keys[:25])
    out, _ = exported(
        replace(project, runtime=replace(project.runtime, replace=True)), images, layout="samples", **params
    )
    samples = list(wds.WebDataset(sorted(map(str, out.glob("*.tar"))), shardshuffle=False).decode())
    assert [sample["__key__"] for sample in samples] == [*keys, "unknown"]
    vectors = open_lookup(project.folder("exports", "all", "lookup", "cbow")).arrays["vectors"]
    for sample in samples[:-1]:
        labels = sample["labels.json"]
        assert labels["image_id"] == f"coco:{sample['__key__']}"
        np.testing.assert_array_equal(sample["vectors.npy"], vectors[labels["caption_rows"]].astype("<f2"))
        assert {len(row) for row in labels["neighbour_ids"] + labels["neighbour_scores"]} == {2}
    assert (samples[-1]["labels.json"], "vectors.npy" in samples[-1]) == ({"missing": True}, False)
    with pytest.raises(ValueError, match=r"a side-car of layout samples.*--layout arrays"):
        open_sidecar(out)


def test_braces_are_expanded_and_bad_shards_refused(project: Project, keys: list[str], tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", keys)
    assert [p.name for p in expand_shards(f"{images}/{{00000..00002}}.tar")] == ["00000.tar", "00001.tar", "00002.tar"]
    assert [p.name for p in expand_shards(f"{images}/0000{{2,0}}.tar")] == ["00002.tar", "00000.tar"]
    assert len(expand_shards(str(images))) == 3

    with pytest.raises(MissingError, match=r"00003.tar: no such file"):
        exported(project, images / "{00000..00003}.tar")
    (images / "00002.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(CheckError, match="not a complete tar file"):
        exported(project, images)
    with tarfile.open(images / "00002.tar", "w"):
        pass
    with pytest.raises(CheckError, match="no sample in this shard"):
        exported(project, images)
    with pytest.raises(CheckError, match="comes back in the same shard"):
        exported(project, write_images(tmp_path / "twice", [keys[0], keys[1], keys[0]]))
    with pytest.raises(UsageError, match="the keys are the ids of captions"):
        exported(project, keys="image")
    with pytest.raises(MissingError, match=r"no lookup cbow.*relabel export lookup --label cbow --split train"):
        stages.export_wds(with_params(project, "wds", shards=str(images)), "cbow", "train").run()
