"""Samples per second that a side-car labels, with each layout and in a loader of two workers.

    python benchmarks/sidecar.py --keys 200000 --width 384

The image shards hold a text of 40 bytes and an image of 2 kB per sample, so that the loader's own work is small: real
images take longer. A stream of keys has no tar files and measures the join alone. The peers are the same loader
without labels, and the layout `samples`, one tar member per field and key, which webdataset reads itself. Samples per
core-second count the CPU time of all processes.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any, NamedTuple

import torch
import webdataset as wds
from harness import Table, options, random_vectors
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from relabel_train.webdataset import BlockCollate, Join, join, open_sidecar

PER_SHARD, BATCH, WORKERS = 10_000, 256, 2


class KeyStream(IterableDataset):  # type: ignore[type-arg]
    """Keys of shards, split among workers, and batches of their labels."""

    def __init__(self, urls: list[str], step: Callable[[Any], Any] | None, collate: Callable[[Any], Any]) -> None:
        self.urls, self.step, self.collate = urls, step, collate

    def __iter__(self) -> Iterator[Any]:
        worker, batch = get_worker_info(), []
        for url in self.urls if worker is None else self.urls[worker.id :: worker.num_workers]:
            for sample in samples_of(url):
                batch.append(sample if self.step is None else self.step(sample))
                if len(batch) == BATCH:
                    yield self.collate(batch)
                    batch = []


def samples_of(url: str) -> list[dict[str, str]]:
    first = int(Path(url).stem) * PER_SHARD
    return [{"__key__": f"{row:09d}", "__url__": url} for row in range(first, first + PER_SHARD)]


class Rate(NamedTuple):
    """Samples per second, and per second of CPU time of this process and its workers."""

    wall: float
    core: float


def rate(samples: Iterable[Any], size: int = 1) -> Rate:
    """Measure an iterable of samples, or of batches of a size."""
    started, used = time.perf_counter(), _cpu()
    iterator = iter(samples)
    count = sum(1 for _ in iterator) * size
    # Workers count when they have ended.
    del iterator
    gc.collect()
    return Rate(count / (time.perf_counter() - started), count / (_cpu() - used))


def _cpu() -> float:
    return sum(sum(getrusage(who)[:2]) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))


def keys_of(batch: list[Any]) -> Any:
    return {"key": torch.tensor([int(sample["__key__"]) for sample in batch])}


def write_images(folder: Path, names: Iterable[str]) -> list[str]:
    """Write image shards of the keys of a side-car."""
    folder.mkdir()
    for name in names:
        with wds.TarWriter(str(folder / name)) as writer:
            for sample in samples_of(name):
                writer.write({"__key__": sample["__key__"], "jpg": bytes(2048), "txt": b"a dog on a surfboard at sea"})
    return [str(folder / name) for name in names]


def loader(urls: list[str], step: Join | None, collate: Callable[[Any], Any]) -> DataLoader[Any]:
    return DataLoader(KeyStream(urls, step, collate), batch_size=None, num_workers=WORKERS)


def tars(urls: list[str], step: Join | None, collate: Callable[[Any], Any]) -> Any:
    dataset = wds.WebDataset(urls, shardshuffle=False, workersplitter=wds.split_by_worker).decode()
    dataset = dataset if step is None else dataset.map(step)
    return wds.WebLoader(dataset.batched(BATCH, collation_fn=collate), batch_size=None, num_workers=WORKERS)


def main() -> None:
    args = options(__doc__, keys=60_000, width=384)
    torch.set_num_threads(1)
    table = Table(f"Samples per second, {args.keys:,} keys with vectors of {args.width} float16")

    def add(task: str, ours: Rate, peer: str = "", theirs: Rate | None = None) -> None:
        table.add(task, "1/s", ours.wall, peer, theirs and theirs.wall)
        table.add(f"{task}, per core", "1/s", ours.core, peer, theirs and theirs.core)

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        step = join(open_sidecar(random_vectors(root / "arrays", args.keys, args.width, "wds"), verify=False))
        samples = random_vectors(root / "samples", args.keys, args.width, "wds", layout="samples")
        images = write_images(root / "images", list(step.sidecar.about.shards))
        layout = wds.WebDataset([str(path) for path in sorted(samples.glob("*.tar"))], shardshuffle=False).decode()
        peer = rate(layout)
        stream = [sample for url in images for sample in samples_of(url)]
        add("join alone, one process", rate(map(step, stream)), "layout samples", peer)
        shuffled = list(wds.shuffle(5000, initial=1000)(iter(stream)))
        add("join alone after a shuffle of 5,000", rate(map(step, shuffled)), "layout samples", peer)
        without = [{"__key__": sample["__key__"]} for sample in stream[:20_000]]
        add("join alone by the index of keys", rate(map(step, without)), "layout samples", peer)
        collate = BlockCollate(step.sidecar, collate=keys_of, pooling="first")
        for name, make in {"stream of keys": loader, "webdataset's tars": tars}.items():
            bare = rate(make(images, None, keys_of), BATCH)
            add(f"{name}, join and blocks", rate(make(images, step, collate), BATCH), "no labels", bare)
    table.end("sidecar", args.save, "numpy", "torch", "webdataset")


if __name__ == "__main__":
    main()
