"""Growth of time, memory and bytes with the number of captions, one caption per image and no splits, as in web crawls.

    python benchmarks/scale.py --rows 10000 100000 1000000 10000000 [--folder DIR] [--stages ingest encode lookup]
    python benchmarks/scale.py --rows 1000000 --format webdataset --stages ingest
    python benchmarks/scale.py --rows 1000000 --kill 3
    python benchmarks/scale.py --rows 200000 --stages ingest sbert

Rows are synthetic: COCO's test captions, each with one to three words replaced, dropped or added, in files of a million
rows: Parquet, the Arrow files of `save_to_disk` of Hugging Face datasets, or tars of webdataset. Word vectors are
random, of 100 dimensions. Each stage is one process of the command. Memory is sampled four times per second: resident
memory, and resident memory without file pages, which the system can reclaim. The exponent of a stage is the slope of
log(CPU seconds) over log(rows), without the first size.

The lookup is then opened, and the side-car joined in a loader of two workers. `--kill N` repeats each stage, kills it N
times at random moments, lets it end, and compares the sha256 of every file; manifests may differ in their timings only.
Results: results/scale.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import RESULTS, coco_test_captions, cpu_seconds, describe, machine, save, show
from full_run import relabel

LIBRARIES = ("numpy", "pyarrow")
WIDTH = 100
_FILE = 1_000_000  # rows per file
_BATCH = 50_000
_JOINED = 100  # shards of a side-car that the loader reads
FORMATS = ("parquet", "arrow", "webdataset")
STAGES: dict[str, tuple[str, ...]] = {
    "ingest": ("ingest", "--path", "captions", "--tokenizer", "none"),
    "encode": ("encode", "--label", "cbow", "--split", "train"),
    "lookup": ("export", "lookup", "--label", "cbow", "--split", "train", "--dtype", "float16"),
    "wds": ("export", "wds", "--label", "cbow", "--split", "train"),
    "hf": ("export", "hf", "--label", "cbow", "--split", "train", "--vectors", "float16"),
    "sbert": ("encode", "--label", "sbert", "--split", "train"),
}
OUTPUTS = {
    "ingest": "corpus",
    "encode": "encodings/train/cbow",
    "lookup": "exports/train/lookup/cbow",
    "wds": "exports/train/wds/cbow",
    "hf": "exports/train/hf/cbow",
    "sbert": "encodings/train/sbert",
}
OPEN = """
import json, sys, time, numpy, psutil
from relabel_train.lookup import open_lookup
open_lookup(sys.argv[1])
before = psutil.Process().memory_info()
started = time.perf_counter()
lookup = open_lookup(sys.argv[1])
opened = time.perf_counter() - started
rows = numpy.random.default_rng(0).integers(len(lookup), size=(100, 256))
batches = [lookup.caption_ids(batch) for batch in rows]
lookup.block(lookup.rows_of(batches[0]))
started = time.perf_counter()
for batch in batches:
    lookup.rows_of(batch)
found = time.perf_counter() - started
after = psutil.Process().memory_info()
grown = after.rss - after.shared - before.rss + before.shared
print(json.dumps({"open ms": opened * 1e3, "rows of 256 ids ms": found * 10, "MiB": grown / 2**20}))
"""


def generate(rows: int, folder: Path, file_format: str, seed: int = 0) -> None:
    """Write captions and word vectors, unless they are there."""
    if (folder / "params.yaml").exists():
        return
    texts = [text for _, _, text in coco_test_captions()]
    words = sorted({word for text in texts for word in text.lower().split()})
    rng = np.random.default_rng(seed)
    captions = folder / "captions"
    captions.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, _FILE)):
        write_captions(
            captions / f"{number:05d}", batches(first, min(first + _FILE, rows), texts, words, rng), file_format
        )
    if file_format == "arrow":
        save_to_disk(captions)
    with (folder / "vectors.txt").open("w", encoding="utf-8") as file:
        for word in words:
            file.write(f"{word} {' '.join(f'{x:.4f}' for x in rng.normal(size=WIDTH))}\n")
    cbow = {"source": "cbow", "vectors": str(folder / "vectors.txt"), "tokenizer": "lower_split"}
    body = {"ingest": {"dataset": "scale"}, "sources": {"cbow": cbow, "sbert": {"source": "sbert"}}}
    # JSON is YAML. This file comes last: it marks complete captions.
    (folder / "params.yaml").write_text(json.dumps(body))


def batches(
    first: int, stop: int, texts: list[str], words: list[str], rng: np.random.Generator
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield ids and captions of some rows."""
    for start in range(first, stop, _BATCH):
        size = min(_BATCH, stop - start)
        edits = rng.integers((3, 1 << 30, len(words)), size=(size, 3, 3)).tolist()
        counts = rng.integers(1, 4, size=size).tolist()
        chosen = rng.integers(len(texts), size=size).tolist()
        edited = [edit(texts[i].split(), words, edits[n][: counts[n]]) for n, i in enumerate(chosen)]
        yield [f"{start + i:09d}" for i in range(size)], edited


def write_captions(path: Path, rows: Iterator[tuple[list[str], list[str]]], file_format: str) -> None:
    """Write ids and captions as one file."""
    if file_format == "webdataset":
        from relabel_train.sidecar import write_tar

        members = ((f"{key}.txt", text.encode()) for keys, texts in rows for key, text in zip(keys, texts, strict=True))
        with path.with_suffix(".tar").open("wb") as file:
            write_tar(file, members)
        return
    schema = pa.schema([("image_id", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(path.with_suffix(".parquet"), schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_table(pa.table(list(batch), schema=schema))


def save_to_disk(folder: Path) -> None:
    """Replace Parquet files by the folder that `save_to_disk` writes."""
    from datasets import Dataset

    files, cache, saved = sorted(folder.glob("*.parquet")), folder.with_name("cache"), folder.with_name("saved")
    Dataset.from_parquet([str(file) for file in files], cache_dir=str(cache)).save_to_disk(str(saved))
    shutil.rmtree(cache)
    shutil.rmtree(folder)
    saved.rename(folder)


def edit(words: list[str], vocabulary: list[str], edits: list[list[int]]) -> str:
    """Return a caption with words replaced, dropped or added."""
    for kind, position, other in edits:
        i, word = position % len(words), vocabulary[other]
        if kind == 0:
            words[i] = word
        elif kind == 1 and len(words) > 3:
            del words[i]
        else:
            words.insert(i, word)
    return " ".join(words)


def measure(
    rows: int, folder: Path, stages: list[str], file_format: str, kills: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the stages for some rows; yield seconds, memory and bytes of each."""
    generate(rows, folder, file_format)
    for stage in stages:
        out = folder / "labels/scale" / OUTPUTS[stage]
        remove(out)
        before = cpu_seconds(children=True)
        _, seconds, memory = relabel(*command(stage), folder=folder)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        figures = {
            "CPU seconds": round(cpu_seconds(children=True) - before, 1),
            "seconds": round(seconds, 1),
            "resident GiB": round(memory.resident / 2**30, 2),
            "anonymous GiB": round(memory.anonymous / 2**30, 2),
            "bytes": size,
        }
        yield stage, figures
        if stage == "lookup":
            text = subprocess.run([sys.executable, "-c", OPEN, str(out)], capture_output=True, text=True, check=True)
            yield stage, {"open": {name: round(value, 2) for name, value in json.loads(text.stdout).items()}}
        if stage == "wds":
            yield stage, {"join": {name: round(value) for name, value in join_rate(out).items()}}
        if kills:
            yield stage, {"kills": check_kills(stage, folder, out, figures["CPU seconds"], kills)}


def command(stage: str) -> tuple[str, ...]:
    return (*STAGES[stage], "--quiet", "--threads", "1")


def remove(out: Path) -> None:
    """Remove an artefact, and work of an interrupted run, which would be resumed."""
    for path in (out, out.parent / ".work"):
        shutil.rmtree(path, ignore_errors=True)


def check_kills(stage: str, folder: Path, out: Path, seconds: float, kills: int) -> int:
    """Repeat a stage, kill it at random moments, let it end and compare its files; return the number of kills."""
    expected, rng, done = digests(out), np.random.default_rng(len(stage)), 0
    remove(out)
    for _ in range(kills):
        line = [sys.executable, "-c", "from relabel_cli.main import main; main()", *command(stage)]
        process = subprocess.Popen(line, cwd=folder, start_new_session=True)
        try:
            # The last kill comes before the end, since a stage with one thread takes at least its CPU seconds.
            process.wait(rng.uniform(0.5, max(1.0, seconds / kills)))
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            done += 1
    relabel(*command(stage), folder=folder)
    if digests(out) != expected:
        raise SystemExit(f"{stage}: other bytes after {done} kills")
    return done


def digests(out: Path) -> dict[str, Any]:
    """Return the sha256 of every file, and the manifest without its timings."""
    hashes: dict[str, Any] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        if path.name == "manifest.json":
            body = json.loads(path.read_text())
            hashes[path.name] = {name: value for name, value in body.items() if name not in ("runtime", "digest")}
        else:
            with path.open("rb") as file:
                hashes[str(path.relative_to(out))] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def keys_of(batch: list[Any]) -> dict[str, list[str]]:
    return {"key": [sample["__key__"] for sample in batch]}


def join_rate(out: Path) -> dict[str, float]:
    """Return the samples per second that a side-car labels in a loader of two workers, of keys without images."""
    from sidecar import BATCH, KeyStream, rate
    from torch.utils.data import DataLoader

    from relabel_train.webdataset import BlockCollate, join, open_sidecar

    step = join(open_sidecar(out, verify=False))
    collate = BlockCollate(step.sidecar, collate=keys_of, pooling="paired")

    def labelled(sample: dict[str, Any]) -> Any:
        # Keys are ids of captions: the image and the position.
        return step(sample | {"__key__": f"{sample['__key__']}#0"})

    urls = [str(out / name) for name in list(step.sidecar.about.shards)[:_JOINED]]
    return rate(DataLoader(KeyStream(urls, labelled, collate), batch_size=None, num_workers=2), BATCH)


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
    parser.add_argument(
        "--stages", nargs="+", choices=list(STAGES), default=["ingest", "encode", "lookup", "wds", "hf"]
    )
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="format of the captions")
    parser.add_argument(
        "--kill", type=int, default=0, metavar="N", help="kill each stage N times and compare the bytes"
    )
    parser.add_argument("--keep", action="store_true", help="keep the files")
    args = parser.parse_args()
    path = RESULTS / "scale.json"
    body: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    # Formats other than Parquet are measured beside the growth.
    sizes = body["rows"] if args.format == "parquet" else body.setdefault("formats", {}).setdefault(args.format, {})
    for rows in args.rows:
        folder = args.folder.resolve() / str(rows)
        for stage, costs in measure(rows, folder, args.stages, args.format, args.kill):
            print(rows, stage, costs, flush=True)
            sizes.setdefault(str(rows), {}).setdefault(stage, {}).update(costs)
            body["machine"] = machine(*LIBRARIES)
            save("scale", body)
        if not args.keep:
            shutil.rmtree(folder)
    figures = {int(rows): stage_costs for rows, stage_costs in body["rows"].items()}
    body["exponents"] = {stage: exponent(figures, stage) for stage in STAGES}
    save("scale", body)
    heads = ("CPU seconds", "seconds", "resident GiB", "anonymous GiB", "bytes")
    table = [
        [stage, f"{rows:,}", *(str(stage_costs[stage][name]) for name in heads)]
        for stage in STAGES
        for rows, stage_costs in sorted((int(rows), costs) for rows, costs in sizes.items())
        if stage in stage_costs
    ]
    show(describe(body["machine"]), ["stage", "rows", "CPU s", "s", "GiB", "GiB without file pages", "bytes"], table)


if __name__ == "__main__":
    main()
