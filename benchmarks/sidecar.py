"""Samples per second that a side-car labels, with each layout and in a loader of two workers.

    python benchmarks/sidecar.py --keys 200000 --width 384

The image shards hold a text of 40 bytes and an image of 2 kB per sample, so that the loader's own work is small: real
images take longer. A stream of keys has no tar files and measures the join alone. Peer: the layout `samples`, one tar
member per field and key, which webdataset reads itself. Samples per core-second count the CPU time of all processes,
which a busy machine changes less than the wall time.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds
from common import cpu_seconds, describe, machine, save, show
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from relabel_train.ids import hash_ids
from relabel_train.sidecar import (
    DESCRIPTION,
    PREFIX,
    ShardEntry,
    SideCarDescription,
    json_member,
    npy_member,
    write_tar,
)
from relabel_train.webdataset import BlockCollate, Join, join, open_sidecar

PER_SHARD = 10_000
BATCH = 256


def write_shards(folder: Path, count: int, width: int) -> tuple[Path, list[str], list[str]]:
    """Write image shards, a side-car of arrays and one of samples; return the folder of arrays and the other urls."""
    images, arrays, samples = (folder / name for name in ("images", "arrays", "samples"))
    for path in (images, arrays, samples):
        path.mkdir()
    rng, entries, hashes = np.random.default_rng(0), {}, []
    for i, first in enumerate(range(0, count, PER_SHARD)):
        name, size = f"{i:05d}.tar", min(PER_SHARD, count - first)
        keys = [f"{row:09d}" for row in range(first, first + size)]
        ids = [f"mine:{key}" for key in keys]
        vectors = rng.standard_normal((size, width), np.float32)
        vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f2")
        texts = {"keys": keys, "image_ids": ids, "caption_ids": [f"{one}#0" for one in ids]}
        numbers = np.arange(first, first + size, dtype="<i4")
        values = {"indptr": np.arange(size + 1, dtype="<i8"), "images": numbers, "rows": numbers, "vectors": vectors}
        members = [(f"{PREFIX}{n}.json", json_member(v)) for n, v in texts.items()]
        members += [(f"{PREFIX}{n}.npy", npy_member(v)) for n, v in values.items()]
        with (arrays / name).open("wb") as file:
            write_tar(file, members)
        entries[name] = ShardEntry(size, size, 0, hashlib.sha256((arrays / name).read_bytes()).hexdigest())
        hashes.append(hash_ids([key.encode() for key in keys]))
        with (samples / name).open("wb") as file:
            write_tar(file, sample_members(keys, ids, vectors, first))
        with (images / name).open("wb") as file:
            write_tar(file, image_members(keys))
    joined = np.concatenate(hashes)
    order = np.argsort(joined)
    (arrays / "index.hashes.npy").write_bytes(npy_member(joined[order]))
    (arrays / "index.order.npy").write_bytes(npy_member(order.astype("<i8")))
    about = SideCarDescription(
        *("arrays", "image", True, "sbert", "random", "train", "", "", "", (-1.0, 1.0), "max"),
        *(("paired", "max", "mean"), 5, "float16", width, 0, entries),
    )
    (arrays / DESCRIPTION).write_text(about.to_json())
    return arrays, *([str(path / name) for name in entries] for path in (images, samples))


def sample_members(keys: list[str], ids: list[str], vectors: np.ndarray, first: int) -> Iterator[tuple[str, bytes]]:
    for i, (key, image) in enumerate(zip(keys, ids, strict=True)):
        labels = {"image_id": image, "image_row": first + i, "caption_ids": [f"{image}#0"], "caption_rows": [first + i]}
        yield f"{key}.{PREFIX}json", json_member(labels)
        yield f"{key}.vectors.npy", npy_member(vectors[i : i + 1])


def image_members(keys: list[str]) -> Iterator[tuple[str, bytes]]:
    for key in keys:
        yield f"{key}.jpg", b"\xff" * 2048
        yield f"{key}.txt", b"a dog that rides on a surfboard at sea.."


class KeyStream(IterableDataset):  # type: ignore[type-arg]
    """Keys of shards, split among workers, and batches of their labels."""

    def __init__(self, urls: list[str], step: Callable[[Any], Any] | None, collate: Callable[[Any], Any]) -> None:
        self.urls, self.step, self.collate = urls, step, collate

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        urls = self.urls if worker is None else self.urls[worker.id :: worker.num_workers]
        batch = []
        for url in urls:
            first = int(Path(url).stem) * PER_SHARD
            for row in range(first, first + PER_SHARD):
                sample = {"__key__": f"{row:09d}", "__url__": url}
                batch.append(sample if self.step is None else self.step(sample))
                if len(batch) == BATCH:
                    yield self.collate(batch)
                    batch = []


def rate(samples: Iterable[Any], size: int = 1) -> dict[str, float]:
    """Samples per second of an iterable, and per second of CPU time of this process and its workers."""
    started, used = time.perf_counter(), cpu_seconds(own=True, children=True)
    iterator = iter(samples)
    count = sum(1 for _ in iterator) * size
    # Workers count when they have ended.
    del iterator
    gc.collect()
    return {
        "wall": count / (time.perf_counter() - started),
        "core": count / (cpu_seconds(own=True, children=True) - used),
    }


def keys_of(batch: list[Any]) -> Any:
    return {"key": torch.tensor([int(sample["__key__"]) for sample in batch])}


def measure(arrays: Path, images: list[str], samples: list[str], workers: int) -> dict[str, dict[str, float]]:
    step, found = join(open_sidecar(arrays, verify=False)), {}
    collate = BlockCollate(step.sidecar, collate=keys_of, pooling="paired")
    torch.set_num_threads(1)

    def loader(join_step: Join | None, function: Callable[[Any], Any]) -> DataLoader[Any]:
        return DataLoader(KeyStream(images, join_step, function), batch_size=None, num_workers=workers)

    stream = [{"__key__": f"{i:09d}", "__url__": images[i // PER_SHARD]} for i in range(len(images) * PER_SHARD)]
    found["join alone, one process"] = rate(map(step, stream))
    shuffled = list(wds.shuffle(5000, initial=1000)(iter(stream)))
    found["join alone after a shuffle of 5,000"] = rate(map(step, shuffled))
    without = [{"__key__": sample["__key__"]} for sample in stream[:20_000]]
    found["join alone by the index of keys"] = rate(map(step, without))
    found[f"stream of keys, {workers} workers, no labels"] = rate(loader(None, keys_of), BATCH)
    found[f"stream of keys, {workers} workers, join and blocks"] = rate(loader(step, collate), BATCH)

    def tars(join_step: Join | None) -> Any:
        dataset = wds.WebDataset(images, shardshuffle=False, workersplitter=wds.split_by_worker).decode()
        dataset = dataset if join_step is None else dataset.map(join_step)
        function = keys_of if join_step is None else collate
        return wds.WebLoader(dataset.batched(BATCH, collation_fn=function), batch_size=None, num_workers=workers)

    found[f"webdataset's tars, {workers} workers, no labels"] = rate(tars(None), BATCH)
    found[f"webdataset's tars, {workers} workers, join and blocks"] = rate(tars(step), BATCH)
    layout = wds.WebDataset(samples, shardshuffle=False).decode()
    found["layout samples, read by webdataset, one process"] = rate(layout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        arrays, images, samples = write_shards(Path(scratch), args.keys, args.width)
        found = measure(arrays, images, samples, args.workers)
    title = f"Samples per second, {args.keys:,} keys with vectors of {args.width} float16"
    table = [[name, f"{one['wall']:,.0f}", f"{one['core']:,.0f}"] for name, one in found.items()]
    show(title, ["", "samples per second", "per core-second"], table)
    facts = machine("numpy", "torch", "webdataset")
    print(describe(facts))
    if args.save:
        print(save("sidecar", {"title": title, "machine": facts, "rows": found}))


if __name__ == "__main__":
    main()
