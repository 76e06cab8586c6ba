"""Recall and time of approximate neighbours, compared with the exact search.

    python benchmarks/index_recall.py [--rows 200000] [--index "IVF1024,Flat" HNSW32] [--folder DIR]

Captions, word vectors of 100 dimensions and labels are those of scale.py. Recall is that of `relabel neighbours
--index`: the share of the k best captions of an exact search, for 1,000 sampled queries, from the manifest. Seconds
include the index and the sample's exact search.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness import Program, Table, options, run_relabel
from scale import generate

K = 10


def neighbours(folder: Path, *index: str) -> Program:
    words = ("neighbours", "--label", "cbow", "--candidates", "train", "-k", str(K))
    return run_relabel(folder, *words, *index)


def main() -> None:
    indexes = ["IVF1024,Flat", "IVF1024,Flat;nprobe=32", "HNSW32"]
    args = options(__doc__, rows=200_000, folder=Path("index-recall"), index=indexes)
    folder = (args.folder / str(args.rows)).absolute()
    generate(args.rows, folder)
    run_relabel(folder, "ingest", "--path", "captions")
    run_relabel(folder, "encode", "--label", "cbow", "--split", "train")
    table = Table(f"Approximate neighbours of {args.rows:,} captions, recall@{K} of 1,000 queries")
    exact = neighbours(folder)
    for index in args.index:
        cpu = neighbours(folder, "--index", index).cpu
        manifest = json.loads((folder / "labels/scale/neighbours/train/captions/cbow/manifest.json").read_text())
        table.add(index, "CPU s", cpu, "exact search", exact.cpu, recall=manifest["metadata"]["recall"]["value"])
    table.end("index_recall", args.save, "numpy", "faiss-cpu")


if __name__ == "__main__":
    main()
