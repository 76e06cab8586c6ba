"""Contract: the join gives each sample of webdataset the labels of its key, in workers, after any shuffle and without
`__url__`; missing keys are refused or counted; the collate's blocks are those of the lookup, up to float16."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.stages import Project
from relabel_train.examples import write_sidecar
from relabel_train.files import LookupFileError
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.webdataset import BlockCollate, join, open_sidecar

wds = pytest.importorskip("webdataset")


def write_images(folder: Path, project: Project, extra: str | None = None) -> list[str]:
    """Write image shards by webdataset's own writer; a sample has an image id as key and all captions as JSON."""
    corpus, folder = project.corpus, folder
    folder.mkdir(parents=True)
    urls = [str(folder / f"{i:05d}.tar") for i in range(4)]
    for i, url in enumerate(urls):
        with wds.TarWriter(url) as writer:
            for image in range(i, 60, 4):
                texts = corpus.texts[corpus.indptr[image] : corpus.indptr[image + 1]]
                key = corpus.image_ids[image].removeprefix("coco:")
                writer.write({"__key__": key, "json": {"captions": texts}, "cls": image})
            if extra is not None and i == 1:
                writer.write({"__key__": extra, "json": {"captions": ["?"]}, "cls": 99})
    return urls


def export(project: Project, folder: Path, dtype: str) -> Path:
    """Export the side-car of the image shards in a folder, from the labels beside them."""
    project = with_params(replace(project, labels=folder / "labels"), "wds", shards=str(folder / "images"), dtype=dtype)
    job = stages.export_wds(project, "cbow", "all")
    job.run()
    return job.out.relative_to(folder)


@pytest.fixture(scope="module")
def built(small_project: Project, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of image shards, labels and their side-car, and the place of the side-car in it."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(small_project.labels, folder / "labels")
    write_images(folder / "images", small_project)
    return folder, export(small_project, folder, "float32")


@pytest.fixture
def exported(built: tuple[Path, Path], tmp_path: Path) -> tuple[list[str], Path, Lookup]:
    """URLs of image shards, the folder of their side-car, and the lookup."""
    shutil.copytree(built[0], tmp_path, dirs_exist_ok=True)
    sidecar = tmp_path / built[1]
    urls = sorted(map(str, (tmp_path / "images").glob("*.tar")))
    return urls, sidecar, open_lookup(sidecar.parents[1] / "lookup" / "cbow")


def choose_caption(sample: dict[str, Any]) -> dict[str, Any]:
    """Choose a caption by the image's number, and check that it is the text of the labels."""
    texts = sample["json"]["captions"]
    chosen = sample["cls"] % len(texts)
    return {"image": sample["cls"], "text": texts[chosen], "caption": chosen, "labels": sample["labels"]}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pooling", ["first", "max", "mean"])
def test_blocks_of_a_shuffled_pipeline_are_those_of_the_lookup(
    exported: tuple[list[str], Path, Lookup], pooling: Any, workers: int
) -> None:
    urls, folder, lookup = exported
    sidecar = open_sidecar(folder, cache=2)  # fewer than there are shards
    collate = BlockCollate(sidecar, caption="caption", pooling=pooling)
    dataset = wds.WebDataset(urls, shardshuffle=4).shuffle(30).decode().map(join(sidecar)).map(choose_caption)
    loader = wds.WebLoader(dataset.batched(16, collation_fn=collate), batch_size=None, num_workers=workers)
    images = []
    for batch in loader:
        images += batch["image"].tolist()
        rows = lookup.rows_of_images([lookup.image_ids([int(lookup.arrays["indptr"][i])])[0] for i in batch["image"]])
        rows = rows + batch["caption"].numpy()
        np.testing.assert_allclose(batch["relevance"], lookup.block(rows, pooling=pooling), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(batch["same_image"], lookup.same_image(rows))
    assert sorted(images) == list(range(60))
    assert images != sorted(images)


def test_labels_belong_to_the_text_of_the_sample(
    exported: tuple[list[str], Path, Lookup], small_project: Project
) -> None:
    urls, folder, _ = exported
    texts = dict(zip(small_project.corpus.caption_ids, small_project.corpus.texts, strict=True))
    samples = list(wds.WebDataset(urls, shardshuffle=False).decode().map(join(folder)))
    assert len(samples) == 60
    for sample in samples:
        assert [texts[name] for name in sample["labels"].caption_ids] == sample["json"]["captions"]


def test_missing_keys_are_refused_or_counted_over_all_workers(
    small_project: Project, exported: tuple[list[str], Path, Lookup], tmp_path: Path
) -> None:
    _, folder, _ = exported
    urls = write_images(tmp_path / "more", small_project, extra="unknown")
    with pytest.raises(KeyError, match=r"no label for the key 'unknown' of .*00001.tar"):
        list(wds.WebDataset(urls, shardshuffle=False).map(join(folder)))
    step = join(folder, missing="skip")
    dataset = wds.WebDataset(urls, shardshuffle=False).map(step).map(lambda sample: sample["__key__"])
    for count in (1, 2):
        assert len(list(wds.WebLoader(dataset, batch_size=None, num_workers=2))) == 60
        assert step.skipped == count
    with pytest.raises(ValueError, match="missing is 'ignore'"):
        join(folder, missing="ignore")  # type: ignore[arg-type]


def test_a_step_crosses_processes_and_notices_another_export(
    exported: tuple[list[str], Path, Lookup], small_project: Project, tmp_path: Path
) -> None:
    _, folder, _ = exported
    sidecar = open_sidecar(folder)
    raw = pickle.dumps(join(sidecar))
    key = sidecar.shard("00000.tar").keys[0]
    labels = pickle.loads(raw)({"__key__": key})["labels"]
    assert pickle.loads(pickle.dumps(labels)).caption_ids == labels.caption_ids
    export(small_project, tmp_path, "float16")
    with pytest.raises(LookupFileError, match="another side-car was exported there meanwhile"):
        pickle.loads(raw)


def test_keys_that_are_unique_in_their_shard_only_need_the_shard(tmp_path: Path) -> None:
    folder = write_sidecar(tmp_path)
    body = json.loads((folder / "sidecar.json").read_text())
    (folder / "sidecar.json").write_text(json.dumps({**body, "keys": "shard"}))
    sidecar = open_sidecar(folder, verify=False)
    assert sidecar.find("0001", "00000.tar") is not None
    with pytest.raises(KeyError, match="unique in their shard only, and the sample has no __url__"):
        sidecar.find("0001")
    with pytest.raises(KeyError, match=r"other.tar is none of its shards"):
        sidecar.find("0001", "other.tar")
