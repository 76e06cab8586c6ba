"""The cost of verifying a lookup and precomputed batches, and the share of single flipped bits that is detected.

    python benchmarks/verify.py                       # a lookup of 600,000 captions, 2,560 batches of 128
    python benchmarks/verify.py --rows 50000 --flips 200

The lookup holds random unit vectors of width 384 and is opened from memory. The peer is `verify=False`, the default,
which opens without reading the arrays. Flips are single random bits in random bytes of all files of a small export
but `manifest.json`: `verify=True` must detect 100%.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Table, clock, options, random_vectors

from relabel_train.files import MANIFEST, LookupFileError
from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches


def milliseconds(work: Callable[[], Any], times: int = 3) -> float:
    return statistics.median(clock(work).wall * 1e3 for _ in range(times))


def read_batches(folder: Path, verify: bool) -> None:
    batches = open_batches(folder, verify)
    for number in range(len(batches)):
        batches[number]
    batches.names(0)


def share_found(folder: Path, open_it: Callable[[Path, bool], Any], flips: int, verify: bool) -> float:
    """Return the share of single flipped bits that raise; a byte is drawn from a file, which is drawn uniformly."""
    files = sorted(path for path in folder.iterdir() if path.name != MANIFEST)
    draws, detected = random.Random(0), 0
    for _ in range(flips):
        path = draws.choice(files)
        at, bit, content = draws.randrange(path.stat().st_size), 1 << draws.randrange(8), path.read_bytes()
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([content[at] ^ bit]))
        try:
            open_it(folder, verify)
        except (LookupFileError, FileNotFoundError):  # the name of an array may be damaged
            detected += 1
        except (ValueError, TypeError, IndexError):  # raised by damaged numbers and ids that were not verified
            pass
        with path.open("r+b") as file:
            file.write(content)
    return detected / flips


def main() -> None:
    args = options(__doc__, rows=600_000, flips=400)
    table = Table("Verification of exports: milliseconds, and shares of flipped bits")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        lookup = random_vectors(root / "lookup", args.rows, 384, "lookup")
        batches = random_vectors(root / "batches", 40_960, 16, "batches", batch_size=128, epochs=8)
        bare = milliseconds(lambda: open_lookup(lookup, False))
        table.add("opening the lookup", "ms", milliseconds(lambda: open_lookup(lookup, True)), "False", bare)
        read = [milliseconds(lambda v=v: read_batches(batches, v)) / 2560 for v in (True, False)]
        table.add("a batch of 128, opening included", "ms", read[0], "False", read[1])
        small = random_vectors(root / "small", 2000, 16, "lookup")
        few = random_vectors(root / "few", 500, 16, "batches", batch_size=16)
        for verify in (True, False):
            shares = [
                share_found(small, open_lookup, args.flips, verify),
                share_found(few, read_batches, args.flips, verify),
            ]
            if verify and min(shares) < 1:
                raise SystemExit(f"verify={verify!r}: {shares} of the flipped bits were detected")
            table.add(f"flips, verify={verify!r}", "share", shares[0], batches=shares[1])
    table.end("verify", args.save, "numpy")


if __name__ == "__main__":
    main()
