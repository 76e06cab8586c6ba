"""A CUDA device beside the processor or sentence-transformers: encoding, exact neighbours, blocks, training, faiss.

    python benchmarks/gpu.py [--rows N] [--captions N] [--device cuda]

- Captions per second of all-MiniLM-L6-v2, beside sentence-transformers' `encode` on the same device.
- The exact 100 nearest of 616,767 random unit vectors of width 384, as many as COCO has captions, as a share of the
  products per second of `torch.mm` on that device.
- Blocks of 128 captions per second of a lookup on the device, beside numpy's.
- An epoch of `relabel fit` (VSE-infinity on random regions) in bfloat16, beside float32.
- `relabel export faiss` with an index of inverted lists, beside the processor.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Table, alternate, clock, coco_captions, options, random_vectors, run_relabel
from neighbours import WIDTH, K, by_relabel
from sentence_transformers import SentenceTransformer

from relabel.core.runtime import Runtime
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel_train.lookup import open_lookup

IMAGES, REGIONS, FEATURES = 1000, 36, 2048


def encoding(table: Table, args: Any) -> None:
    texts, folder = [text for _, _, text in coco_captions(args.captions)], find_model(DEFAULT_MODEL).folder
    peer = SentenceTransformer(str(folder), device=args.device)
    works = {"peer": lambda: peer.encode(texts, normalize_embeddings=True)}
    for dtype in ("float32", "bfloat16"):
        encoder = SentenceEncoder(folder, None, None, dtype, Runtime(device=args.device))
        works[dtype] = lambda encoder=encoder: encoder.encode(texts).vectors
    alternate(works, 1)
    costs = alternate(works, args.repeats)
    theirs = len(texts) / costs.pop("peer").wall
    for dtype, cost in costs.items():
        table.add(f"encode, {dtype}", "captions/s", len(texts) / cost.wall, "sentence-transformers", theirs)


def neighbours(table: Table, args: Any) -> None:
    vectors = np.random.default_rng(0).standard_normal((args.rows, WIDTH), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    by_relabel(vectors[:4000], args.threads)
    found = clock(lambda: by_relabel(vectors, args.threads))
    some = torch.from_numpy(vectors[: min(args.rows, 20_000)]).to(args.device)
    product = clock(lambda: [float((some @ some.T)[0, 0]) for _ in range(5)])
    rates = args.rows**2 / found.wall, 5 * len(some) ** 2 / product.wall
    table.add(f"exact top {K} of {args.rows:,}", "products/s", rates[0], "torch.mm", rates[1], seconds=found.wall)


def blocks(table: Table, args: Any, folder: Path) -> None:
    lookup = open_lookup(random_vectors(folder / "lookup", args.captions, WIDTH, "lookup"))
    moved, rng = lookup.to(args.device), np.random.default_rng(0)
    batches = [rng.choice(args.captions, 128, replace=False) for _ in range(200)]
    works = {"device": lambda: [moved.block(rows) for rows in batches][-1].sum().item()}
    works["numpy"] = lambda: [lookup.block(rows) for rows in batches]
    alternate(works, 1)
    device, numpy = (len(batches) / cost.wall for cost in alternate(works, args.repeats).values())
    table.add("blocks of 128", "blocks/s", device, "numpy", numpy)


def training(table: Table, args: Any, folder: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        json.dumps({"image_id": str(n // 5), "split": "train" if n < 5 * IMAGES else "val", "text": text})
        for n, (_, _, text) in enumerate(coco_captions(5 * IMAGES + 500))
    ]
    folder.mkdir()
    (folder / "captions.jsonl").write_text("\n".join(lines))
    for name, images in (("train", range(IMAGES)), ("dev", range(IMAGES, IMAGES + 100))):
        np.save(folder / f"{name}_ims.npy", rng.standard_normal((len(images), REGIONS, FEATURES), np.float32))
        (folder / f"{name}_ids.txt").write_text("\n".join(map(str, images)))
    run_relabel(folder, "ingest", "--dataset", "mine", "--path", "captions.jsonl", "--quiet")
    given = ("--features", ".", "--captions", "labels/mine/corpus", "--model", "vse_inf", "--epochs", "1", "--quiet")
    seconds = {}
    for precision in ("bfloat16", "float32"):
        own = ("--out", precision, "--set", f"precision={precision}", "--device", args.device)
        seconds[precision] = run_relabel(folder, "fit", *given, *own).wall
    table.add(f"fit, {IMAGES:,} images", "s", seconds["bfloat16"], "float32", seconds["float32"])


def index(table: Table, args: Any, folder: Path) -> None:
    random_vectors(folder / "index", args.captions, WIDTH, "hf")
    words = ("export", "faiss", "--labels", "index", "--dataset", "benchmark", "--split", "test", "--quiet")
    choice = ("--label", "precomputed", "--index", f"IVF{args.captions // 100},Flat")
    given = ("--set", "sources.precomputed.captions=index/vectors.npy")
    seconds = []
    for device in (args.device, "cpu"):
        shutil.rmtree(folder / "index/benchmark/exports/test/faiss", ignore_errors=True)
        seconds.append(run_relabel(folder, *words, *choice, *given, "--device", device).wall)
    table.add("export faiss, IVF", "s", seconds[0], "cpu", seconds[1])


def main() -> None:
    args = options(__doc__, rows=616_767, captions=25_000, device="cuda")
    name = torch.cuda.get_device_name() if args.device == "cuda" else "the processor"
    table = Table(f"{name}, {args.threads} threads")
    encoding(table, args)
    neighbours(table, args)
    with tempfile.TemporaryDirectory() as scratch:
        blocks(table, args, Path(scratch))
        training(table, args, Path(scratch, "fit"))
        index(table, args, Path(scratch))
    table.end("gpu", args.save, "torch", "sentence-transformers")


if __name__ == "__main__":
    main()
