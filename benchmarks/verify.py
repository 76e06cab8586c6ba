"""The cost of verifying a lookup and a batch plan, and the share of single flipped bits that is detected.

    python benchmarks/verify.py                       # a lookup of 600,000 captions, a plan of 2,560 batches of 128
    python benchmarks/verify.py --rows 50000 --flips 200

The lookup holds random unit vectors of width 384 and ids. It is opened from memory with every value of `verify`; the
first opening has no stamp of an earlier one. Flips are single random bits in random bytes of all files of a small
lookup and plan.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import describe, machine, save, show

from relabel.store.arrays import write_array
from relabel.store.artefact import build
from relabel.store.files import write_text
from relabel.store.manifest import ArtefactSpec
from relabel.store.workdir import Work
from relabel_train.batches.plan import COVERAGE, EXACT, NAME, ORIENTATION, SAME_IMAGE, open_plan, shard_name
from relabel_train.batches.plan import FORMAT as PLAN_FORMAT
from relabel_train.ids import Ids
from relabel_train.lookup import LookupFileError, open_lookup
from relabel_train.lookup.format import DESCRIPTION, ArrayEntry, Description


def ids_of(rows: int) -> dict[str, np.ndarray]:
    captions = Ids.of([f"coco:{i}" for i in range(rows)]).arrays("caption_ids")
    return captions | Ids.of([f"coco:{i}" for i in range(rows // 5)]).arrays("image_ids")


def make_lookup(out: Path, rows: int, width: int) -> None:
    artefact = ArtefactSpec("lookup", "random", {"rows": rows}, {})
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((rows, width), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    arrays = {
        "image": np.arange(rows, dtype="<i4") // 5,
        "indptr": np.arange(0, rows + 1, 5, dtype="<i8"),
        "failed": np.empty(0, "<i4"),
        "vectors": vectors,
        **ids_of(rows),
    }

    def fill(work: Work) -> None:
        for name, array in arrays.items():
            write_array(work, name, array)
        digests = {name: work.entries()[f"{name}.npy"].sha256 for name in arrays}
        entries = {name: ArrayEntry(a.dtype.str, a.shape, digests[name]) for name, a in arrays.items()}
        about = Description(
            kind="vectors", source="sbert", label="random", fingerprint=artefact.fingerprint, corpus="", encoding="",
            neighbours=None, split="all", rows=(0, rows), bounds=(-1.0, 1.0), pooling="max",
            poolings=("paired", "max", "mean"), references=5, symmetric=True, dtype="float32", sizes={}, failed=0,
            params={}, arrays=entries,
        )  # fmt: skip
        work.file(DESCRIPTION, lambda path: write_text(path, about.to_json()))

    build(out, artefact, fill)


def make_plan(out: Path, rows: int, size: int, shards: int, per_shard: int) -> None:
    import json

    batches, rng = shards * per_shard, np.random.default_rng(0)
    chosen = rng.integers(0, rows, (batches, size)).astype("<i4")
    artefact = ArtefactSpec("plan", "random", {"shards": shards}, {})
    about: dict[str, Any] = {
        "kind": "plan", "format": PLAN_FORMAT, "label": "random", "source": "random", "source_kind": "vectors",
        "split": "all", "captions": [0, rows], "images": [0, rows // 5], "left_out": 0, "batch_size": size,
        "batches": batches, "epochs": [batches], "batches_per_shard": per_shard, "shards": shards, "sampler": {},
        "neighbours": None, "bounds": [0, 1], "pooling": "max", "orientation": ORIENTATION, "same_image": SAME_IMAGE,
        "coverage": COVERAGE, "exact": EXACT, "corpus": "", "fingerprint": artefact.fingerprint,
    }  # fmt: skip

    def fill(work: Work) -> None:
        for name, array in {"rows": chosen, "images": chosen // 5, **ids_of(rows)}.items():
            write_array(work, name, array)
        for shard in range(shards):
            write_array(work, shard_name(shard, shards), rng.random((per_shard, size, size), np.float32))
        work.file(NAME, lambda path: write_text(path, json.dumps(about)))

    build(out, artefact, fill)


def timed(call: Callable[[], Any], times: int = 5) -> float:
    """Return the median in milliseconds."""
    milliseconds = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        milliseconds.append((time.perf_counter() - started) * 1e3)
    return statistics.median(milliseconds)


def read_plan(folder: Path, verify: Any) -> None:
    plan = open_plan(folder, verify)
    for number in range(len(plan)):
        plan[number]
    plan.names(0)


def share_found(folder: Path, open_it: Callable[[Path, Any], Any], flips: int, verify: Any) -> float:
    """Return the share of single flipped bits that raise; a byte is drawn from a file, which is drawn uniformly."""
    draws, files, detected = random.Random(0), sorted(folder.iterdir()), 0
    for _ in range(flips):
        path = draws.choice(files)
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            at, bit = draws.randrange(size), 1 << draws.randrange(8)
            file.seek(at)
            old = file.read(1)[0]
            file.seek(at)
            file.write(bytes([old ^ bit]))
        try:
            open_it(folder, verify)
        except LookupFileError:
            detected += 1
        except (IndexError, UnicodeDecodeError):  # raised by damaged ids that were not verified
            pass
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([old]))
    return detected / flips


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/verify.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        os.environ["RELABEL_CACHE"] = str(root / "cache")
        make_lookup(root / "lookup", args.rows, 384)
        make_plan(root / "plan", 100_000, 128, 256, 10)
        make_lookup(root / "small", 2000, 16)
        make_plan(root / "small plan", 500, 16, 4, 5)
        size = sum(p.stat().st_size for p in (root / "lookup").iterdir()) / 1e9
        rows = [{"what": f"lookup, {size:.2f} GB: first opening", "ms": timed(lambda: open_lookup(root / "lookup"), 1)}]
        for verify in ("once", True, False):
            name = "later openings" if verify == "once" else f"verify={verify}"
            rows.append({"what": f"lookup: {name}", "ms": timed(lambda v=verify: open_lookup(root / "lookup", v), 3)})
        for verify in ("once", False):
            rows.append(
                {
                    "what": f"plan of 256 shards: open, {verify!r}",
                    "ms": timed(lambda v=verify: open_plan(root / "plan", v)),
                }
            )
            each = timed(lambda v=verify: read_plan(root / "plan", v), 3) / 2560
            rows.append({"what": f"plan: a batch of 128, {verify!r}", "ms": each})
        shares = []
        for name, folder, reader in (("lookup", "small", open_lookup), ("plan", "small plan", read_plan)):
            for verify in ("once", True, False):
                share = share_found(root / folder, reader, args.flips, verify)
                shares.append({"what": f"{name}, verify={verify!r}", "found": share})
        show("Milliseconds", ["", "ms"], [[r["what"], f"{r['ms']:,.3f}"] for r in rows])
        show(f"{args.flips:,} flipped bits", ["", "detected"], [[r["what"], f"{r['found']:.1%}"] for r in shares])
        facts = machine("numpy")
        print(describe(facts))
        if args.save:
            print(save("verify", {"title": "Verifying exports", "machine": facts, "rows": rows, "shares": shares}))


if __name__ == "__main__":
    main()
