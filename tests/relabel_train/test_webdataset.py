"""Contract: the join gives each sample of webdataset the labels of its key, in workers, after any shuffle and without
`__url__`; missing keys are refused or counted; the collate's blocks are those of the lookup. A hostile
side-car is refused by name."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.stages import Session, open_corpus
from relabel_train.examples import write_sidecar
from relabel_train.files import LookupFileError
from relabel_train.lookup import open_lookup
from relabel_train.sidecar import write_tar
from relabel_train.webdataset import BlockCollate, join, open_sidecar

wds = pytest.importorskip("webdataset")


def write_images(folder: Path, session: Session, *more: str) -> list[str]:
    """Write image shards by webdataset's own writer; a sample has an image id as key and all captions as JSON."""
    corpus, urls = open_corpus(session), [str(folder / f"{i:05d}.tar") for i in range(4)]
    folder.mkdir(exist_ok=True)
    for i, url in enumerate(urls):
        with wds.TarWriter(url) as writer:
            for image in range(i, 60, 4):
                texts = corpus.texts[corpus.indptr[image] : corpus.indptr[image + 1]]
                key = corpus.image_ids[image].removeprefix("coco:")
                writer.write({"__key__": key, "json": {"captions": texts}, "cls": image})
            for key in more:
                writer.write({"__key__": key, "json": {"captions": ["?"]}, "cls": 99})
    return urls


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory, small_project: Session) -> list[str]:
    return write_images(tmp_path_factory.mktemp("images"), small_project)


@pytest.fixture
def folder(small_project: Session, urls: list[str], tmp_path: Path) -> Path:
    """Return the side-car of the image shards."""
    session = in_folder(small_project, tmp_path / "labels", "neighbours", "exports/all/lookup")
    session = with_params(session, "wds", shards=str(Path(urls[0]).parent), dtype="float32")
    job = stages.wds_export(session, "cbow", "all")
    job.run()
    return job.out


def choose_caption(sample: dict[str, Any]) -> dict[str, Any]:
    """Choose a caption by the image's number."""
    chosen = sample["cls"] % len(sample["json"]["captions"])
    text = sample["json"]["captions"][chosen]
    return {"image": sample["cls"], "text": text, "caption": chosen, "labels": sample["labels"]}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pooling", ["first", "max", "mean"])
def test_shuffled_blocks_are_those_of_the_lookup(
    urls: list[str], folder: Path, small_project: Session, pooling: Any, workers: int
) -> None:
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    sidecar, corpus = open_sidecar(folder, cache=2), open_corpus(small_project)  # fewer than there are shards
    collate = BlockCollate(sidecar, caption="caption", pooling=pooling)
    dataset = wds.WebDataset(urls, shardshuffle=4).shuffle(30).decode().map(join(sidecar)).map(choose_caption)
    images = []
    for batch in wds.WebLoader(dataset.batched(16, collation_fn=collate), batch_size=None, num_workers=workers):
        images += batch["image"].tolist()
        rows = corpus.indptr[batch["image"]] + batch["caption"].numpy()
        assert batch["text"] == [corpus.texts[row] for row in rows]
        np.testing.assert_allclose(batch["relevance"], lookup.block(rows, pooling=pooling), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(batch["same_image"], lookup.same_image(rows))
    assert sorted(images) == list(range(60)) != images


def test_missing_keys_are_refused_or_counted_over_all_workers(small_project: Session, folder: Path) -> None:
    urls = write_images(folder / "more", small_project, "unknown")
    with pytest.raises(KeyError, match=r"'unknown' of .*00000.tar"):
        list(wds.WebDataset(urls, shardshuffle=False).map(join(folder)))
    step = join(folder, missing="skip")
    dataset = wds.WebDataset(urls, shardshuffle=False).map(step).map(lambda sample: sample["__key__"])
    for count in (4, 8):
        assert len(list(wds.WebLoader(dataset, batch_size=None, num_workers=2))) == 60
        assert step.skipped == count
    with pytest.raises(ValueError, match="missing is 'ignore'"):
        join(folder, missing="ignore")  # type: ignore[arg-type]


HEADER = "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"
OBJECTS = b"\x93NUMPY\x01\x00" + len(HEADER).to_bytes(2, "little") + HEADER.encode() + b"\1" * 16


def test_hostile_sidecars_are_named(tmp_path: Path) -> None:
    """Check fields, names and files of a side-car, and members that hold addresses or are nested too deeply."""
    folder = write_sidecar(tmp_path / "x")
    path, shard = folder / "sidecar.json", folder / "00000.tar"
    text, raw = path.read_text(), shard.read_bytes()
    body, entry = json.loads(text), json.loads(text)["shards"]["00000.tar"]
    changes = [{name: wrong} for name in body for wrong in (["x"], ...)]
    changes += [{"shards": shards} for shards in ({"../x/00000.tar": entry}, {"00000.tar": {**entry, "keys": 1 << 62}})]
    for change in [*changes, {"layout": "x"}, {"keys": "x"}]:
        path.write_text(json.dumps({name: value for name, value in (body | change).items() if value is not ...}))
        with pytest.raises(LookupFileError, match=r"sidecar\.json|index\.hashes"):
            open_sidecar(folder, verify=False)
    path.write_text(text)
    for name, member in (("images.npy", OBJECTS), ("keys.json", b"[" * 100_000), ("keys.json", b"5"), ("x.json", b"")):
        with shard.open("wb") as file:
            write_tar(file, [(f"labels.{name}", member)])
        with pytest.raises(LookupFileError, match=r"00000\.tar"):
            open_sidecar(folder, verify=False).shard("00000.tar")
    for place in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        shard.unlink()
        place(shard)
        for verify in (False, True):
            with pytest.raises(LookupFileError, match=r"00000\.tar: not a regular file"):
                open_sidecar(folder, verify=verify).shard("00000.tar")
    shard.unlink()
    shard.write_bytes(raw)
    assert open_sidecar(folder).shard("00000.tar").keys == ["0001", "0002"]


def test_a_step_crosses_processes(folder: Path) -> None:
    sidecar = open_sidecar(folder)
    raw, key = pickle.dumps(join(sidecar)), sidecar.shard("00000.tar").keys[0]
    labels = pickle.loads(raw)({"__key__": key})["labels"]
    assert pickle.loads(pickle.dumps(labels)).caption_ids == labels.caption_ids


def test_labels_of_float16_vectors_are_1_for_equal_captions_and_within_the_bounds(tmp_path: Path) -> None:
    step, sidecar = join(write_sidecar(tmp_path)), open_sidecar(tmp_path)
    samples = [step({"__key__": key}) for key in ("0001", "0002", "0002")]
    relevance = BlockCollate(sidecar, lambda _: {})(samples)["relevance"]
    np.testing.assert_allclose(relevance, [[1, 0.6, 0.6], [0.6, 1, 1], [0.6, 1, 1]], atol=1e-3)
    assert (relevance.max() <= 1, relevance[1, 2] >= 1 - 1e-6, relevance[0, 0] >= 1 - 1e-6) == (True, True, True)


def test_keys_that_are_unique_in_their_shard_only_need_the_shard(tmp_path: Path) -> None:
    """Check shards of one name in two folders, which a folder of the URL tells apart."""
    folder = write_sidecar(tmp_path)
    body = json.loads((folder / "sidecar.json").read_text())
    shards = dict.fromkeys(("a/00000.tar", "b/00000.tar"), body["shards"]["00000.tar"])
    (folder / "sidecar.json").write_text(json.dumps({**body, "keys": "shard", "shards": shards}))
    (folder / "b").mkdir()
    (folder / "00000.tar").rename(folder / "b/00000.tar")
    sidecar = open_sidecar(folder, verify=False)
    assert sidecar.find("0001", "images/b/00000.tar.gz") is not None
    for url in (None, "other.tar", "images/c/00000.tar"):
        with pytest.raises(KeyError, match=url or "no __url__"):
            sidecar.find("0001", url)
