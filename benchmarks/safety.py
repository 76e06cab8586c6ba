"""What safety costs: shards written with sha256, fsync, renames and a manifest, beside the same shards written without.

    python benchmarks/safety.py [--rows N] [--width D] [--k K] [--folder DIR] [--repeats R]

Three ways, in turns, on one disk: `bare` (pyarrow writes each shard and nothing else: a kill leaves half a shard, a
power cut anything), `synced` (and one fsync a file, the least that keeps data), `safe` (relabel's store). CPU seconds
tell apart what a busy machine or disk adds. Beside them stands the work of the stage that makes such shards: sentence
embeddings of as many captions (some of them are timed), and the least that an exact search can take, half of all
products at this machine's measured rate.
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
from relabel.store.fixed_parquet import write_plain
from relabel.store.manifest import ArtefactSpec
from relabel.store.workdir import Work, part_name

SHARD = 50_000
TIMED = 2_000  # captions that are encoded to know how long all take
BLOCK = 4096  # of the product that gives the machine's rate

Tables = dict[str, pa.Table]


def vectors(rows: int, width: int) -> Tables:
    """Shards of unit vectors, as an encoding has them."""
    rng = np.random.default_rng(0)
    found = {}
    for number, start in enumerate(range(0, rows, SHARD)):
        count = min(SHARD, rows - start)
        values = rng.standard_normal((count, width), np.float32)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        row = pa.array(np.arange(start, start + count, dtype=np.int32))
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)
        found[part_name(number, -(-rows // SHARD))] = pa.table({"row": row, "vector": column})
    return found


def neighbours(rows: int, k: int) -> Tables:
    """Shards of neighbours."""
    rng = np.random.default_rng(0)
    found = {}
    for number, start in enumerate(range(0, rows, SHARD)):
        count = min(SHARD, rows - start)
        near = rng.integers(0, rows, (count, k), np.int32)
        scores = -np.sort(-rng.random((count, k)), axis=1)
        row = np.arange(start, start + count, dtype=np.int32)
        found[part_name(number, -(-rows // SHARD))] = table_of(row, near, scores, near % 5 == 0)
    return found


def bare(tables: Tables, folder: Path, sync: bool = False) -> None:
    """Write each shard with pyarrow."""
    folder.mkdir()
    for name, table in tables.items():
        write_plain(folder / name, [table], table.schema)
        if sync:
            with (folder / name).open("rb+") as file:
                os.fsync(file.fileno())


def safe(tables: Tables, folder: Path) -> None:
    """Write each shard as every stage does."""

    def fill(work: Work) -> None:
        for name, table in tables.items():
            work.file(name, partial(write_plain, tables=[table], schema=table.schema), rows=table.num_rows)

    build(folder / "out", ArtefactSpec("encoding", "safety", {"rows": len(tables)}, {}), fill)


WAYS: dict[str, Callable[[Tables, Path], None]] = {"bare": bare, "synced": partial(bare, sync=True), "safe": safe}


def compare(tables: Tables, home: Path, repeats: int) -> dict[str, dict[str, Any]]:
    """Write in all ways, in turns; the disk is idle before each."""
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
    found = {}
    for name, each in seconds.items():
        wall, cpu = (statistics.median(column) for column in zip(*each, strict=True))
        found[name] = {"wall": wall, "cpu": cpu, "each": each, "bytes": size}
    return found


def encode_seconds(rows: int) -> float:
    """How long sentence embeddings of so many captions take."""
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
    """The least that the products of an exact search among so many vectors can take."""
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
    said = {name: value for name, value in vars(options).items() if name != "folder"}
    body: dict[str, Any] = {"machine": facts, "options": said, "tables": {}}
    stages = {
        "vectors": (vectors(options.rows, options.width), encode_seconds(options.rows)),
        "neighbours": (neighbours(options.rows, options.k), search_seconds(options.rows, options.width)),
    }
    lines = []
    for name, (tables, stage) in stages.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as home:
            found = compare(tables, Path(home), options.repeats)
        plain, whole = found["bare"]["wall"], found["safe"]["wall"]
        body["tables"][name] = {"ways": found, "stage": stage, "share_of_stage": (whole - plain) / (stage + plain)}
        for way, figures in found.items():
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
    head = ["shards", "way", "s", "over bare", "CPU s", "stage, s", "over stage"]
    show(f"Writing {options.rows:,} rows in shards of {SHARD:,}", head, lines)
    print(save("safety", body))


if __name__ == "__main__":
    main()
