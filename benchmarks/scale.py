"""Growth of time, memory and bytes with the number of captions, one caption per image and no splits, as in web crawls.

    python benchmarks/scale.py --rows 10000 100000 1000000 [--folder DIR] [--stages ingest encode lookup]

Rows are synthetic: COCO's test captions, each with one to three words replaced, dropped or added, in Parquet files of a
million rows. Word vectors are random, of 100 dimensions. Each stage is one process of the command. Memory is sampled
four times per second: resident memory, and resident memory without file pages, which the system can reclaim. The
exponent of a stage is the slope of log(CPU seconds) over log(rows), without the first size.
Results: results/scale.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import RESULTS, coco_test_captions, describe, machine, save, show
from full_run import relabel

LIBRARIES = ("numpy", "pyarrow")
WIDTH = 100
_FILE = 1_000_000  # rows per Parquet file
_BATCH = 50_000
STAGES: dict[str, tuple[str, ...]] = {
    "ingest": ("ingest", "--path", "captions", "--format", "parquet", "--tokenizer", "none"),
    "encode": ("encode", "--label", "cbow", "--split", "train"),
    "lookup": ("export", "lookup", "--label", "cbow", "--split", "train"),
    "hf": ("export", "hf", "--label", "cbow", "--split", "train", "--vectors", "float16"),
    "wds": ("export", "wds", "--label", "cbow", "--split", "train"),
}
OUTPUTS = {
    "ingest": "corpus",
    "encode": "encodings/train/cbow",
    "lookup": "exports/train/lookup/cbow",
    "hf": "exports/train/hf/cbow",
    "wds": "exports/train/wds/cbow",
}


def generate(rows: int, folder: Path, seed: int = 0) -> None:
    """Write captions and word vectors, unless they are there."""
    if (folder / "params.yaml").exists():
        return
    texts = [text for _, _, text in coco_test_captions()]
    words = sorted({word for text in texts for word in text.lower().split()})
    rng = np.random.default_rng(seed)
    (folder / "captions").mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("image_id", pa.string()), ("text", pa.string())])
    for number, first in enumerate(range(0, rows, _FILE)):
        with pq.ParquetWriter(folder / "captions" / f"{number:05d}.parquet", schema, compression="zstd") as writer:
            for start in range(first, min(first + _FILE, rows), _BATCH):
                size = min(_BATCH, rows - start, first + _FILE - start)
                edited = [edit(texts[i].split(), words, rng) for i in rng.integers(len(texts), size=size)]
                writer.write_table(pa.table([[f"{start + i:09d}" for i in range(size)], edited], schema=schema))
    with (folder / "vectors.txt").open("w", encoding="utf-8") as file:
        for word in words:
            file.write(f"{word} {' '.join(f'{x:.4f}' for x in rng.normal(size=WIDTH))}\n")
    source = {"source": "cbow", "vectors": str(folder / "vectors.txt"), "tokenizer": "lower_split", "index": None}
    body = {"ingest": {"dataset": "scale"}, "sources": {"cbow": source}}
    # JSON is YAML. This file comes last: it marks complete captions.
    (folder / "params.yaml").write_text(json.dumps(body))


def edit(words: list[str], vocabulary: list[str], rng: np.random.Generator) -> str:
    """Return a caption with one to three words replaced, dropped or added."""
    for kind, position, other in zip(
        rng.integers(3, size=rng.integers(1, 4)).tolist(), rng.integers(1 << 30, size=3), rng.integers(1 << 30, size=3),
        strict=False,
    ):  # fmt: skip
        i, word = int(position) % len(words), vocabulary[int(other) % len(vocabulary)]
        if kind == 0:
            words[i] = word
        elif kind == 1 and len(words) > 3:
            del words[i]
        else:
            words.insert(i, word)
    return " ".join(words)


def measure(rows: int, folder: Path, stages: list[str]) -> dict[str, Any]:
    """Run the stages for some rows; return seconds, memory and bytes of each."""
    generate(rows, folder)
    figures: dict[str, Any] = {}
    for stage in stages:
        out = folder / "labels/scale" / OUTPUTS[stage]
        # Work of an interrupted run would be resumed.
        for path in (out, out.parent / ".work"):
            shutil.rmtree(path, ignore_errors=True)
        before = cpu_seconds()
        _, seconds, memory = relabel(*STAGES[stage], "--quiet", "--threads", "1", folder=folder)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        figures[stage] = {
            "CPU seconds": round(cpu_seconds() - before, 1),
            "seconds": round(seconds, 1),
            "resident GiB": round(memory.resident / 2**30, 2),
            "anonymous GiB": round(memory.anonymous / 2**30, 2),
            "bytes": size,
        }
        print(rows, stage, figures[stage], flush=True)
    return figures


def cpu_seconds() -> float:
    """Return the CPU seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def exponent(figures: dict[int, dict[str, Any]], stage: str) -> float | None:
    """Return the slope of log(CPU seconds) over log(rows) by least squares, without the smallest size."""
    sizes = [rows for rows in sorted(figures) if stage in figures[rows]][1:]
    points = [(log(rows), log(figures[rows][stage]["CPU seconds"])) for rows in sizes]
    if len(points) < 2:
        return None
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, default=Path("scale"), help="one folder per size below it")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=["ingest", "encode", "lookup", "hf"])
    parser.add_argument("--keep", action="store_true", help="keep the files")
    args = parser.parse_args()
    path = RESULTS / "scale.json"
    body: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    for rows in args.rows:
        folder = args.folder.resolve() / str(rows)
        body["rows"][str(rows)] = body["rows"].get(str(rows), {}) | measure(rows, folder, args.stages)
        if not args.keep:
            shutil.rmtree(folder)
        body["machine"] = machine(*LIBRARIES)
        save("scale", body)
    figures = {int(rows): stage_costs for rows, stage_costs in body["rows"].items()}
    body["exponents"] = {stage: exponent(figures, stage) for stage in STAGES}
    save("scale", body)
    table = [
        [stage, f"{rows:,}", *(str(value) for value in stage_costs[stage].values())]
        for stage in STAGES
        for rows, stage_costs in sorted(figures.items())
        if stage in stage_costs
    ]
    show(describe(body["machine"]), ["stage", "rows", "CPU s", "s", "GiB", "GiB without file pages", "bytes"], table)


if __name__ == "__main__":
    main()
