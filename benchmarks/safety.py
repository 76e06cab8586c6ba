"""The cost of safe writes: shards with sha256, fsync, renames and a manifest, compared with shards without them.

    python benchmarks/safety.py [--rows N] [--width D] [--k K] [--folder DIR] [--repeats R]

Three ways run alternately on one disk. `bare`: pyarrow writes each shard and nothing else; a killed process leaves half
a shard, and a power failure may lose data. `synced`: one fsync per file is added, the minimum that keeps data. `safe`:
relabel's store. CPU seconds exclude waiting for a busy machine or disk. The table also shows the computation of the
stages that write such shards: sentence embeddings of as many captions, extrapolated from a sample, and the lower bound
of an exact search, half of all products at this machine's measured rate.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import coco_test_captions, describe, machine, save, show

from relabel.neighbours.spec import table_of
from relabel.store.artefact import build
from relabel.store.files import write_plain
from relabel.store.manifest import ArtefactSpec
from relabel.store.workdir import Work, part_name

SHARD = 50_000
TIMED = 2_000  # captions that are encoded; the time of all is extrapolated
BLOCK = 4096  # rows of the product that measures the machine's rate

Tables = dict[str, pa.Table]


def vectors(rows: int, width: int) -> Tables:
    """Return shards of unit vectors, as in an encoding."""
    rng = np.random.default_rng(0)
    shards = {}
    for number, start in enumerate(range(0, rows, SHARD)):
        count = min(SHARD, rows - start)
        values = rng.standard_normal((count, width), np.float32)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        row = pa.array(np.arange(start, start + count, dtype=np.int32))
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)
        shards[part_name(number, -(-rows // SHARD))] = pa.table({"row": row, "vector": column})
    return shards


def neighbours(rows: int, k: int) -> Tables:
    """Return shards of neighbours."""
    rng = np.random.default_rng(0)
    shards = {}
    for number, start in enumerate(range(0, rows, SHARD)):
        count = min(SHARD, rows - start)
        near = rng.integers(0, rows, (count, k), np.int32)
        scores = -np.sort(-rng.random((count, k)), axis=1)
        row = np.arange(start, start + count, dtype=np.int32)
        shards[part_name(number, -(-rows // SHARD))] = table_of(row, near, scores, near % 5 == 0)
    return shards


def bare(tables: Tables, folder: Path, sync: bool = False) -> None:
    """Write each shard with pyarrow."""
    folder.mkdir()
    for name, table in tables.items():
        write_plain(folder / name, [table], table.schema)
        if sync:
            with (folder / name).open("rb+") as file:
                os.fsync(file.fileno())


def safe(tables: Tables, folder: Path) -> None:
    """Write each shard as the stages do."""

    def fill(work: Work) -> None:
        for name, table in tables.items():
            work.file(name, partial(write_plain, tables=[table], schema=table.schema), rows=table.num_rows)

    build(folder / "out", ArtefactSpec("encoding", "safety", {"rows": len(tables)}, {}), fill)


WAYS: dict[str, Callable[[Tables, Path], None]] = {"bare": bare, "synced": partial(bare, sync=True), "safe": safe}


def compare(tables: Tables, home: Path, repeats: int) -> dict[str, dict[str, Any]]:
    """Write in all three ways alternately; wait for the disk to be idle before each."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for _ in range(repeats):
        for name, write in WAYS.items():
            folder = home / name
            shutil.rmtree(folder, ignore_errors=True)
            os.sync()
            wall, cpu = time.perf_counter(), time.process_time()
            write(tables, folder)
            seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    size = sum(p.stat().st_size for p in (home / "safe" / "out").iterdir())
    medians = {}
    for name, each in seconds.items():
        wall, cpu = (statistics.median(column) for column in zip(*each, strict=True))
        medians[name] = {"wall": wall, "cpu": cpu, "each": each, "bytes": size}
    return medians


def encode_seconds(rows: int) -> float:
    """Estimate the seconds that sentence embeddings of `count` captions take."""
    from relabel.core.runtime import Runtime
    from relabel.sources.models.encoder import SentenceEncoder
    from relabel.sources.models.files import DEFAULT_MODEL, find_model

    runtime = Runtime(device="cpu")
    encoder = SentenceEncoder(find_model(DEFAULT_MODEL, None, runtime.data).folder, None, None, "float32", runtime)
    texts = [text for _, _, text in coco_test_captions()[: TIMED + 64]]
    encoder.encode(texts[:64])
    started = time.perf_counter()
    encoder.encode(texts[64:])
    return (time.perf_counter() - started) / TIMED * rows


def search_seconds(rows: int, width: int) -> float:
    """Estimate a lower bound of the seconds that the products of an exact search take."""
    a = np.random.default_rng(0).standard_normal((BLOCK, width), np.float32)
    a @ a.T
    started, times = time.perf_counter(), 3
    for _ in range(times):
        a @ a.T
    return (time.perf_counter() - started) / times / BLOCK**2 * rows**2 / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    facts = machine("pyarrow", "numpy")
    print(describe(facts))
    settings = {name: value for name, value in vars(options).items() if name != "folder"}
    body: dict[str, Any] = {"machine": facts, "options": settings, "tables": {}}
    stages = {
        "vectors": (vectors(options.rows, options.width), encode_seconds(options.rows)),
        "neighbours": (neighbours(options.rows, options.k), search_seconds(options.rows, options.width)),
    }
    lines = []
    for name, (tables, stage) in stages.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as home:
            medians = compare(tables, Path(home), options.repeats)
        plain, safe_seconds = medians["bare"]["wall"], medians["safe"]["wall"]
        body["tables"][name] = {
            "ways": medians,
            "stage": stage,
            "share_of_stage": (safe_seconds - plain) / (stage + plain),
        }
        for way, figures in medians.items():
            more = (figures["wall"] - plain) / (stage + plain)
            lines.append(
                [
                    f"{name}, {figures['bytes'] / 1e6:.0f} MB",
                    way,
                    f"{figures['wall']:.3f}",
                    f"{figures['wall'] / plain - 1:+.1%}",
                    f"{figures['cpu']:.3f}",
                    f"{stage:.0f}",
                    f"{more:+.3%}",
                ]
            )
    head = ["shards", "mode", "s", "over bare", "CPU s", "stage, s", "over stage"]
    show(f"Writing {options.rows:,} rows in shards of {SHARD:,}", head, lines)
    print(save("safety", body))


if __name__ == "__main__":
    main()
