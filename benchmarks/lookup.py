"""A (128, 128) block of labels for random captions, from a lookup and from tables without one.

    python benchmarks/lookup.py --labels labels/coco/exports/all/lookup   # folder written by `relabel export lookup`
    python benchmarks/lookup.py --rows 50000                              # a trial: COCO's captions, random vectors
    python benchmarks/lookup.py --labels FOLDER --large 4096 16384 --device cuda    # large blocks, by lookup.to

The peers are a pandas DataFrame of an encoding in memory (one list or array per row), the same rows read from Parquet
for each block, and scipy's fancy indexing of CSR rows. Seconds are medians over random batches; `cpu` counts the
calling thread only. `cold` is the first block of a new process after posix_fadvise(DONTNEED) on every file, opening
included. `workers` is the additional time per batch of a DataLoader with labels over one without.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import describe, machine, save, show

from relabel_train.lookup import Lookup, open_lookup
from relabel_train.lookup.format import DESCRIPTION, KINDS, ArrayEntry

B = 128
Block = Callable[[np.ndarray], np.ndarray]


def dry_run(scratch: Path, rows: int | None) -> dict[str, Path]:
    """Export lookups of COCO's captions inside pycocoevalcap: cider on lower-case words, and random vectors."""
    from relabel import stages
    from relabel.config import load_config
    from relabel.core.runtime import Runtime
    from relabel.corpus import Corpus

    sources = {"cider": {"source": "cider", "tokenizer": "lower_split"}}
    config = load_config(None, ["ingest.tokenizer=none", f"sources={json.dumps(sources)}"])
    project = stages.Project(config, Runtime(data=scratch / "data"), scratch / "labels")
    stages.fetch(project)
    stages.ingest(project)
    if rows:  # `corpus` is a cached property
        full = project.corpus
        stop = int(full.indptr[np.searchsorted(full.indptr, rows)])
        project.__dict__["corpus"] = Corpus.from_table(full.table.slice(0, stop))
    stages.encode(project, "cider", "all").run()
    stages.export_lookup(project, "cider", "all").run()
    cider = project.layout.lookup("all", "cider")
    about, vectors = open_lookup(cider).about, cider.parent / "random vectors"
    vectors.mkdir()
    for name in set(about.schema) - set(KINDS["features"]):
        (vectors / f"{name}.npy").symlink_to(cider / f"{name}.npy")
    count, rng = about.rows[1] - about.rows[0], np.random.default_rng(0)
    out = np.lib.format.open_memmap(vectors / "vectors.npy", "w+", "<f4", (count, 384))
    for a in range(0, count, 50_000):
        vectors_part = rng.standard_normal((min(50_000, count - a), 384), np.float32)
        out[a : a + len(vectors_part)] = vectors_part / np.linalg.norm(vectors_part, axis=1, keepdims=True)
    out.flush()
    shared_entries = {name: entry for name, entry in about.arrays.items() if name not in KINDS["features"]}
    entries = shared_entries | {"vectors": ArrayEntry("<f4", (count, 384), "0" * 64)}
    changed = replace(about, kind="vectors", source="random", label="random vectors", pooling="max", arrays=entries)
    changed = replace(changed, bounds=(-1.0, 1.0), poolings=("paired", "max", "mean"), sizes={})
    (vectors / DESCRIPTION).write_text(changed.to_json(), encoding="utf-8")
    return {"cider": cider, "random vectors": vectors}


def vector_peers(lookup: Lookup, scratch: Path) -> dict[str, Block]:
    """Return peers that compute paired blocks."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    vectors = np.load(lookup.folder / "vectors.npy", mmap_mode="r")
    first = lookup.rows.start
    frame = pd.DataFrame({"vector": list(np.asarray(vectors))}, index=pd.RangeIndex(first, lookup.rows.stop))
    files = []
    for a in range(0, len(vectors), 50_000):
        part = np.asarray(vectors[a : a + 50_000], np.float32)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        table = pa.table({"row": np.arange(first + a, first + a + len(part), dtype=np.int32), "vector": lists})
        files.append(scratch / f"{lookup.about.kind}-{a}.parquet")
        pq.write_table(table, files[-1], compression="none", row_group_size=5_000)

    def from_pandas(rows: np.ndarray) -> np.ndarray:
        selected = np.stack(frame.loc[rows, "vector"].to_numpy())
        return selected @ selected.T

    def from_parquet(rows: np.ndarray) -> np.ndarray:
        table = pd.read_parquet(files, filters=[("row", "in", rows.tolist())]).set_index("row")
        selected = np.stack(table.loc[rows, "vector"].to_numpy()).astype(np.float32)
        return selected @ selected.T

    return {"pandas, in memory": from_pandas, "pandas, Parquet": from_parquet}


def feature_peers(lookup: Lookup) -> dict[str, Block]:
    """Return a peer for blocks of references; cells of an image and its own captions are left to the lookup's table."""
    from scipy.sparse import csr_matrix

    names = ("indptr", "columns", "reference", "candidate", "length", "gauss")
    indptr, columns, reference, candidate, length, gauss = (
        np.load(lookup.folder / f"features.{name}.npy") for name in names
    )
    image, first = (np.load(lookup.folder / f"{name}.npy") for name in ("image", "indptr"))
    shape = (len(lookup), lookup.about.sizes["columns"])
    left, right = (csr_matrix((data, columns, indptr), shape=shape) for data in (reference, candidate))

    def from_scipy(rows: np.ndarray) -> np.ndarray:
        places = rows - lookup.rows.start
        start, stop = first[image[places]], first[image[places] + 1]
        sets = [np.arange(a, min(a + 5, b)) for a, b in zip(start, stop, strict=True)]
        refs = np.concatenate(sets)
        scores = (left[refs] @ right[places].T).toarray()
        scores *= gauss[np.abs(length[refs][:, None] - length[places])]
        cuts = np.cumsum([0, *map(len, sets[:-1])])
        return np.add.reduceat(scores, cuts, axis=0) / np.array([[len(s)] for s in sets])

    return {"scipy, CSR rows": from_scipy}


def timed(block: Block, batches: list[np.ndarray]) -> dict[str, float]:
    """Return medians over batches; each batch is requested twice and the second call is timed."""
    wall, cpu = [], []
    for rows in batches:
        block(rows)
        started, started_cpu = time.perf_counter(), time.thread_time()
        block(rows)
        cpu.append(time.thread_time() - started_cpu)
        wall.append(time.perf_counter() - started)
    return {"wall_us": statistics.median(wall) * 1e6, "cpu_us": statistics.median(cpu) * 1e6}


def cold(folder: Path, pooling: str, repeats: int) -> float:
    """Return the milliseconds until the first block of a new process, with no page of the lookup in memory."""
    milliseconds = []
    for seed in range(repeats):
        for path in folder.glob("*.npy"):
            with path.open("rb") as handle:
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        command = [sys.executable, __file__, "--first", str(folder), "--pooling", pooling, "--seed", str(seed)]
        milliseconds.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return statistics.median(milliseconds)


def first(folder: Path, pooling: str, seed: int) -> None:
    started = time.perf_counter()
    lookup = open_lookup(folder, verify=False)
    rows = np.random.default_rng(seed).integers(lookup.rows.start, lookup.rows.stop, B)
    lookup.block(rows, pooling=pooling)  # type: ignore[arg-type]
    print((time.perf_counter() - started) * 1e3)


def through_workers(block: Block | None, rows: range, batches: int, workers: int) -> float:
    """Return the seconds per batch of a DataLoader whose collate computes the block, or returns an empty one."""
    import torch
    from torch.utils.data import DataLoader

    def collate(some: list[int]) -> Any:
        labels = np.zeros((B, B), np.float32) if block is None else block(np.array(some))
        return torch.from_numpy(np.ascontiguousarray(labels))

    warnings.filterwarnings("ignore", message="This DataLoader will create")
    order = np.random.default_rng(1).integers(rows.start, rows.stop, batches * B).tolist()
    loader = DataLoader(order, batch_size=B, num_workers=workers, collate_fn=collate)  # type: ignore[arg-type]
    iterator = iter(loader)
    next(iterator)  # the workers have started
    started = time.perf_counter()
    count = sum(1 for _ in iterator)
    return (time.perf_counter() - started) / count


def measure(lookup: Lookup, pooling: str, peers: dict[str, Block], args: argparse.Namespace) -> list[dict[str, Any]]:
    rng = np.random.default_rng(2)
    batches = [rng.integers(lookup.rows.start, lookup.rows.stop, B) for _ in range(args.repeats)]
    ours: Block = partial(lookup.block, pooling=pooling)  # type: ignore[arg-type]
    lines = []
    empty = through_workers(None, lookup.rows, args.batches, args.workers) if args.workers else 0.0
    for name, block in {"lookup": ours, **peers}.items():
        off = ~lookup.same_image(batches[0])
        difference = float(np.abs(block(batches[0]) - ours(batches[0]))[off].max(initial=0))
        if difference > 2e-6 * max(1.0, lookup.about.bounds[1]):
            raise SystemExit(f"{name} and the lookup differ by {difference:.3g}")
        slow = name.endswith("Parquet")
        line = {"label": lookup.about.label, "pooling": pooling, "from": name, "largest_difference": difference}
        line |= timed(block, batches[:3] if slow else batches)
        line["cold_ms"] = cold(lookup.folder, pooling, 5) if name == "lookup" else None
        if args.workers and not slow:
            line["worker_us"] = (through_workers(block, lookup.rows, args.batches, args.workers) - empty) * 1e6
        lines.append(line)
    return lines


def measure_large(lookup: Lookup, device: str, sizes: list[int]) -> list[dict[str, Any]]:
    """Seconds of large blocks from the mapped vectors and from vectors on a device."""
    labels, rng, lines = lookup.to(device), np.random.default_rng(3), []
    for size in sizes:
        rows = rng.integers(lookup.rows.start, lookup.rows.stop, size)
        for pooling in ("paired", "max"):
            line: dict[str, Any] = {"label": lookup.about.label, "pooling": pooling, "batch": size, "device": device}
            started, used = time.perf_counter(), time.process_time()
            mapped = lookup.block(rows, pooling=pooling)
            line |= {"mapped_s": time.perf_counter() - started, "mapped_cpu_s": time.process_time() - used}
            started, used = time.perf_counter(), time.process_time()
            block = labels.block(rows, pooling=pooling)
            # A value of the block waits for the device.
            difference = abs(float(block[-1, -1]) - float(mapped[-1, -1]))
            line |= {"device_s": time.perf_counter() - started, "device_cpu_s": time.process_time() - used}
            line["largest_difference"] = max(difference, float(np.abs(block[:64].cpu().numpy() - mapped[:64]).max()))
            lines.append(line)
    return lines


def large(args: argparse.Namespace) -> None:
    lines: list[dict[str, Any]] = []
    for path in sorted(args.labels.glob(f"*/{DESCRIPTION}")):
        lookup = open_lookup(path.parent, verify=False)
        if lookup.about.kind == "vectors":
            lines += measure_large(lookup, args.device, args.large)
    names = ("mapped_s", "mapped_cpu_s", "device_s", "device_cpu_s")
    table = [
        [f"{line['label']}, {line['pooling']}, B = {line['batch']:,}", *(f"{line[name]:.2f}" for name in names)]
        for line in lines
    ]
    show("Large blocks", ["", "lookup.block, s", "CPU s", f"lookup.to({args.device!r}), s", "CPU s"], table)
    facts = machine("numpy", "torch")
    print(describe(facts))
    print(save("lookup_large", {"title": "Large blocks", "machine": facts, "rows": lines}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=Path, help="folder of lookups; a trial with random vectors by default")
    parser.add_argument("--rows", type=int, help="captions of the trial; all by default")
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--workers", type=int, default=8, help="workers of a DataLoader; 0 skips it")
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--large", type=int, nargs="+", help="sizes of blocks to measure on a device instead")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--first", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pooling", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.first:
        first(args.first, args.pooling, args.seed)
        return
    if args.large:
        large(args)
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(args, Path(scratch))


def run(args: argparse.Namespace, scratch: Path) -> None:
    folders = {p.parent.name: p.parent for p in sorted(args.labels.glob(f"*/{DESCRIPTION}"))} if args.labels else None
    lines: list[dict[str, Any]] = []
    captions = 0
    for folder in (folders or dry_run(scratch, args.rows)).values():
        lookup = open_lookup(folder, verify=False)  # the trial's vectors have no manifest
        captions = len(lookup)
        if lookup.about.kind == "vectors":
            lines += measure(lookup, "paired", vector_peers(lookup, scratch), args)
            lines += measure(lookup, "max", {}, args) + measure(lookup, "mean", {}, args)
        elif lookup.about.kind == "features":
            lines += measure(lookup, "refs", feature_peers(lookup), args)
    title = f"A ({B}, {B}) block over {captions:,} captions"
    table = [
        [
            f"{line['label']}, {line['pooling']}: {line['from']}",
            f"{line['wall_us']:,.0f}",
            f"{line['cpu_us']:,.0f}",
            f"{line['cold_ms']:,.1f}" if line["cold_ms"] is not None else "",
            f"{line['worker_us']:,.0f}" if "worker_us" in line else "",
        ]
        for line in lines
    ]
    show(title, ["", "warm, us", "warm, CPU us", "cold, ms", f"added per batch, {args.workers} workers, us"], table)
    facts = machine("numpy", "pandas", "scipy", "torch")
    print(describe(facts))
    if args.labels:
        print(save("lookup", {"title": title, "machine": facts, "workers": args.workers, "rows": lines}))


if __name__ == "__main__":
    main()
