"""All captions of a dataset by one `relabel run`: corpus, encodings, exact neighbours of every caption, lookups.

    python benchmarks/full_run.py [--dataset flickr30k] [--folder DIR] [--label cider] [--set KEY=VALUE]

The folder is empty, or made by an earlier run. The bytes are those of the artefacts. Seconds of a stage are those of
its manifest. Memory is sampled four times per second and summed over the command and its processes: resident, and
without pages of files, which the system can reclaim. No other tool makes these files: the table has no peer.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness import Table, options, run_relabel


def main() -> None:
    args = options(__doc__, dataset="coco", folder=Path("full-run"), label=[""], set=[""])
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    run_relabel(folder, "fetch", {"coco": "coco-captions"}.get(args.dataset, args.dataset))
    ingest = run_relabel(folder, "ingest", "--dataset", args.dataset)
    chosen = [f"--label={label}" for label in args.label if label] + [f"--set={one}" for one in args.set if one]
    total = run_relabel(folder, "run", "--dataset", args.dataset, "--split", "all", *chosen)
    table = Table(f"relabel run --dataset {args.dataset} --split all")
    bytes_of = {}
    for path in sorted((folder / "labels" / args.dataset).rglob("manifest.json")):
        name, manifest = str(path.parent.relative_to(folder / "labels" / args.dataset)), json.loads(path.read_text())
        bytes_of[name] = sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
        table.add(name, "s", manifest["provenance"]["seconds"], bytes=bytes_of[name])
    more = {"resident GiB": total.resident, "without pages of files": total.anonymous}
    table.add("all", "s", total.wall + ingest.wall, bytes=sum(bytes_of.values()), **more)
    table.end(f"full_run_{args.dataset}", args.save, "numpy", "numba", "pyarrow", "torch", "sentence-transformers")


if __name__ == "__main__":
    main()
