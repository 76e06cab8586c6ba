"""Recall and time of approximate neighbours, one caption per image.

    python benchmarks/index_recall.py --rows 200000 1000000 [--folder DIR] [--index IVF1024,Flat HNSW32]

Captions, word vectors of 100 dimensions and labels are those of scale.py. Recall is that of `relabel neighbours
--index`: the share of the k best captions of an exact search, for 1,000 sampled queries, from the manifest. Seconds
include the index and the sample's exact search. Results: results/index_recall.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from common import cpu_seconds, describe, machine, save, show
from full_run import relabel
from scale import generate

K = 10


def measure(folder: Path, index: str) -> dict[str, Any]:
    """Find neighbours by an index and return recall, wall and CPU seconds."""
    before = cpu_seconds(children=True)
    relabel(
        "neighbours", "--label", "cbow", "--within", "train", "-k", str(K), "--index", index, "--replace", folder=folder
    )
    cpu = cpu_seconds(children=True) - before
    manifest = json.loads((folder / "labels/scale/neighbours/train/captions/cbow/manifest.json").read_text())
    return {"recall": manifest["facts"]["recall"], "wall s": manifest["runtime"]["seconds"], "CPU s": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000])
    parser.add_argument("--folder", type=Path, default=Path("index-recall"))
    parser.add_argument("--index", nargs="+", default=["IVF1024,Flat", "IVF1024,Flat;nprobe=32", "HNSW32"])
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    results: dict[str, Any] = {}
    for rows in args.rows:
        folder = (args.folder / str(rows)).absolute()
        generate(rows, folder, "parquet")
        relabel("ingest", "--path", "captions", "--tokenizer", "none", folder=folder)
        relabel("encode", "--label", "cbow", "--split", "train", folder=folder)
        for index in args.index:
            results[f"{rows:,} rows, {index}"] = measure(folder, index)
    title = f"Approximate neighbours: recall@{K} on 1,000 queries, and seconds"
    table = [
        [name, f"{one['recall']['value']:.4f}", f"{one['wall s']:,.0f}", f"{one['CPU s']:,.0f}"]
        for name, one in results.items()
    ]
    show(title, ["", "recall", "wall s", "CPU s"], table)
    facts = machine("numpy", "faiss-cpu")
    print(describe(facts))
    if args.save:
        print(save("index_recall", {"title": title, "machine": facts, "rows": results}))


if __name__ == "__main__":
    main()
