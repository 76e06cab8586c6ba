"""All captions of a dataset by one `relabel run`: corpus, encodings, exact neighbours of every caption, lookups.

    python benchmarks/full_run.py [--dataset coco] [--split all] [--folder DIR] [-- more options of relabel run]

The benchmark fetches and ingests the dataset, records the estimates of the dry run, and runs. Memory is sampled four
times per second and summed over the command and its processes: resident memory, and resident memory without file pages,
which the system can reclaim. Seconds of a stage are those of its manifest. Results: results/full_run_DATASET.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from common import describe, machine, save, show

LIBRARIES = ("numpy", "numba", "pyarrow", "torch", "sentence-transformers", "faiss-cpu")


class Memory(threading.Thread):
    """Peak memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.resident, self.anonymous = pid, 0, 0

    def run(self) -> None:
        try:
            root = psutil.Process(self.pid)
            while root.is_running():
                usages = [_memory(p) for p in (root, *root.children(recursive=True))]
                self.resident = max(self.resident, sum(f[0] for f in usages))
                self.anonymous = max(self.anonymous, sum(f[1] for f in usages))
                time.sleep(0.25)
        except psutil.Error:
            return


def _memory(process: psutil.Process) -> tuple[int, int]:
    try:
        info = process.memory_info()
        return info.rss, info.rss - info.shared
    except psutil.Error:
        return 0, 0


def relabel(*arguments: str, folder: Path) -> tuple[str, float, Memory]:
    """Run the command; return what it prints, its seconds and its memory."""
    started = time.perf_counter()
    command = [sys.executable, "-c", "from relabel_cli.main import main; main()", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        memory = Memory(process.pid)
        memory.start()
        out = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"relabel {' '.join(arguments)} ended with {process.returncode}")
    return out, time.perf_counter() - started, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="coco")
    parser.add_argument("--split", default="all")
    parser.add_argument("--folder", type=Path, default=Path("full-run"), help="empty, or made by an earlier run")
    parser.add_argument("more", nargs="*", help="further options of relabel run")
    args = parser.parse_args()
    folder: Path = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["run", "--dataset", args.dataset, "--split", args.split, *args.more]

    named = {"coco": "coco-captions"}.get(args.dataset, args.dataset)
    relabel("fetch", named, folder=folder)
    _, ingest, _ = relabel("ingest", "--dataset", args.dataset, folder=folder)
    estimates = json.loads(relabel(*arguments, "--dry-run", "--json", folder=folder)[0])
    before = machine(*LIBRARIES)
    _, seconds, memory = relabel(*arguments, folder=folder)
    written = json.loads(relabel(*arguments, "--dry-run", "--json", folder=folder)[0])

    steps: list[dict[str, Any]] = []
    for expected, step in zip(estimates, written, strict=True):
        manifest = json.loads((folder / step["out"] / "manifest.json").read_text(encoding="utf-8"))
        steps.append(
            {
                "stage": step["stage"],
                "name": step["name"],
                "rows": step["rows"],
                "bytes": step["bytes"],
                "bytes_predicted": expected["bytes"],
                "seconds": manifest["runtime"]["seconds"],
            }
        )
    gib = {"resident": memory.resident / 2**30, "without pages of files": memory.anonymous / 2**30}
    total = {
        "seconds": round(seconds + ingest, 1),
        "bytes": sum(step["bytes"] for step in steps),
        "peak_gib": {name: round(value, 2) for name, value in gib.items()},
        "load_at_the_end": round(os.getloadavg()[0], 1),
    }
    print(describe(before))
    head = ("stage", "rows", "bytes", "predicted", "seconds")
    rows = [
        (
            f"{s['stage']} {s['name']}",
            f"{s['rows']:,}",
            f"{s['bytes']:,}",
            f"~{s['bytes_predicted']:,}",
            f"{s['seconds']:.1f}",
        )
        for s in steps
    ]
    show(f"relabel {' '.join(arguments)}: {total['seconds'] / 60:.1f} min, {gib['resident']:.2f} GiB", head, rows)
    body = {"command": f"relabel {' '.join(arguments)}", "machine": before, "total": total, "steps": steps}
    print(f"\nwritten to {save(f'full_run_{args.dataset}', body)}")


if __name__ == "__main__":
    main()
