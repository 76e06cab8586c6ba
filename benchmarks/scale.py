"""Growth of time, memory and bytes with the number of captions, one caption per image and no splits, as in web crawls.

    python benchmarks/scale.py --rows 10000 100000 1000000 10000000 [--folder DIR] [--stages ingest encode lookup]
    python benchmarks/scale.py --rows 1000000 --format webdataset --stages ingest
    python benchmarks/scale.py --rows 10000 50000 200000 --stages ingest sbert

Rows are synthetic: COCO's test captions, each with one to three words replaced, dropped or added, in files of a
million rows: Parquet, the Arrow files of `save_to_disk` of Hugging Face datasets, or tars of webdataset. Word vectors
are random, of 100 dimensions. Each stage is one process of the command. The exponent of a stage is the slope of
log(CPU seconds) over log(rows), without the first size. The lookup is then opened, and the side-car joined in a
loader of two workers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset as wds
from harness import Table, clock, coco_captions, options, run_relabel

WIDTH = 100
_FILE = 1_000_000  # rows per file
_BATCH = 50_000
# The output of a stage below the dataset's folder, and its command.
STAGES = {
    "ingest": ("corpus", "ingest --path captions"),
    "encode": ("encodings/train/cbow", "encode --label cbow --split train"),
    "lookup": ("exports/train/lookup/cbow", "export lookup --label cbow --split train --dtype float16"),
    "wds": ("exports/train/wds/cbow", "export wds --label cbow --split train"),
    "hf": ("exports/train/hf/cbow", "export hf --label cbow --split train --vectors float16"),
    "sbert": ("encodings/train/sbert", "encode --label sbert --split train"),
}


def generate(rows: int, folder: Path, file_format: str = "parquet") -> None:
    """Write captions and word vectors, unless they are there."""
    if (folder / "params.yaml").exists():
        return
    texts = [text for _, _, text in coco_captions()]
    words = sorted({word for text in texts for word in text.lower().split()})
    rng, captions = np.random.default_rng(0), folder / "captions"
    captions.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, _FILE)):
        some = batches(range(first, min(first + _FILE, rows)), texts, words, rng)
        if file_format == "webdataset":
            with wds.TarWriter(str(captions / f"{number:05d}.tar")) as tar:
                for batch in some:
                    for key, text in zip(*batch.to_pydict().values(), strict=True):
                        tar.write({"__key__": key, "txt": text})
        else:
            pq.write_table(pa.concat_tables(some), captions / f"{number:05d}.parquet", compression="zstd")
    if file_format == "arrow":
        save_to_disk(captions)
    with (folder / "vectors.txt").open("w", encoding="utf-8") as file:
        for word in words:
            file.write(f"{word} {' '.join(f'{x:.4f}' for x in rng.normal(size=WIDTH))}\n")
    cbow = {"source": "cbow", "vectors": str(folder / "vectors.txt"), "tokenizer": "lower_split"}
    body = {"ingest": {"dataset": "scale"}, "sources": {"cbow": cbow, "sbert": {"source": "sbert"}}}
    # JSON is YAML. This file comes last: it marks complete captions.
    (folder / "params.yaml").write_text(json.dumps(body))


def batches(rows: range, texts: list[str], words: list[str], rng: np.random.Generator) -> Iterator[pa.Table]:
    """Yield ids and captions of some rows."""
    for start in range(rows.start, rows.stop, _BATCH):
        size = min(_BATCH, rows.stop - start)
        edits = rng.integers((3, 1 << 30, len(words)), size=(size, 3, 3)).tolist()
        counts = rng.integers(1, 4, size=size).tolist()
        chosen = rng.integers(len(texts), size=size).tolist()
        edited = [edit(texts[i].split(), words, edits[n][: counts[n]]) for n, i in enumerate(chosen)]
        yield pa.table({"image_id": [f"{start + i:09d}" for i in range(size)], "text": edited})


def save_to_disk(folder: Path) -> None:
    """Replace Parquet files by the folder that `save_to_disk` writes."""
    from datasets import Dataset

    cache, saved = folder.with_name("cache"), folder.with_name("saved")
    Dataset.from_parquet(sorted(map(str, folder.iterdir())), cache_dir=str(cache)).save_to_disk(str(saved))
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


def measure(table: Table, stage: str, rows: int, folder: Path) -> float:
    """Run a stage and return its CPU seconds."""
    output, words = STAGES[stage]
    out = folder / "labels/scale" / output
    for path in (out, out.parent / ".work"):  # work of an interrupted run would be resumed
        shutil.rmtree(path, ignore_errors=True)
    threads = () if stage == "ingest" else ("--threads", "1")
    program = run_relabel(folder, *words.split(), "--quiet", *threads)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    more = {"seconds": program.wall, "GiB": program.resident, "GiB without file pages": program.anonymous}
    table.add(f"{stage}, {rows:,} rows", "CPU s", program.cpu, **more, bytes=size)
    if stage == "lookup":
        open_again(table, rows, out)
    if stage == "wds":
        table.add(f"join, {rows:,} rows", "1/s", join_rate(out))
    return program.cpu


def open_again(table: Table, rows: int, out: Path) -> None:
    """Time an opening of the lookup, and the rows of 256 ids."""
    from relabel_train.lookup import open_lookup

    open_lookup(out)
    opened = clock(lambda: open_lookup(out))
    lookup = opened.result
    names = lookup.caption_ids(np.random.default_rng(0).integers(len(lookup), size=256))
    lookup.rows_of(names)
    found = clock(lambda: lookup.rows_of(names))
    table.add(f"opening, {rows:,} rows", "ms", opened.wall * 1e3)
    table.add(f"rows of 256 ids, {rows:,} rows", "ms", found.wall * 1e3)


def keys_of(batch: list[Any]) -> dict[str, list[str]]:
    return {"key": [sample["__key__"] for sample in batch]}


def join_rate(out: Path) -> float:
    """Return the samples per second that a side-car labels in a loader of two workers, of keys without images."""
    from sidecar import BATCH, loader, rate

    from relabel_train.webdataset import BlockCollate, join, open_sidecar

    step = join(open_sidecar(out, verify=False))

    def labelled(sample: dict[str, Any]) -> Any:
        # Keys are ids of captions: the image and the position.
        return step(sample | {"__key__": f"{sample['__key__']}#0"})

    urls = [str(out / name) for name in list(step.sidecar.about.shards)[:100]]
    return rate(loader(urls, labelled, BlockCollate(step.sidecar, collate=keys_of, pooling="first")), BATCH).wall


def main() -> None:
    stages = [stage for stage in STAGES if stage != "sbert"]
    args = options(__doc__, rows=[10_000, 100_000], folder=Path("scale"), stages=stages, format="parquet")
    table, cpu = Table(f"Stages, captions in {args.format}, one thread"), dict[str, list[float]]()
    for count in args.rows:
        folder = args.folder.resolve() / str(count)
        generate(count, folder, args.format)
        for stage in args.stages:
            cpu.setdefault(stage, []).append(measure(table, stage, count, folder))
        shutil.rmtree(folder)
    for stage, seconds in cpu.items():
        if len(seconds) > 2:
            slope = np.polyfit(np.log(args.rows[1:]), np.log(seconds[1:]), 1)[0]
            table.add(f"{stage}, exponent", "", float(slope))
    table.end("scale", args.save, "numpy", "pyarrow")


if __name__ == "__main__":
    main()
