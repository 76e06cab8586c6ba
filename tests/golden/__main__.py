"""Freeze what relabel computes, or compare it with what is frozen.

`compare` prints a line for every entry that differs and exits with 4 if there is one. A change of a value on purpose
runs `freeze --only PATTERN` and commits the values alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from fnmatch import fnmatchcase
from pathlib import Path

from tests.golden import store
from tests.golden.today import Skip
from tests.golden.units import Unit, all_units


def selected(quick: bool, only: str) -> dict[str, Unit]:
    """Return the units that can hold an entry of the pattern."""
    chosen = {}
    for name, (in_quick, unit) in all_units().items():
        entries = [f"{name}/{key}" for key in store.read(name)] or [name]
        if (in_quick or not quick) and any(fnmatchcase(entry, only) for entry in (*entries, f"{name}/")):
            chosen[name] = unit
    return chosen


def _spent(started: tuple[float, float]) -> str:
    return f"{time.perf_counter() - started[0]:.1f} s, CPU {time.process_time() - started[1]:.1f} s"


def freeze(root: Path, quick: bool = False, only: str = "*") -> int:
    """Write the values of units; return 1 if one failed."""
    failed = 0
    for name, unit in selected(quick, only).items():
        started, frozen = (time.perf_counter(), time.process_time()), store.read(name)
        try:
            found = unit(root)
        except Skip as reason:
            print(f"skipped {name}: {reason}", flush=True)
            continue
        except Exception:  # the other units are of use without this one
            traceback.print_exc()
            failed += 1
            continue
        kept = {key: value for key, value in frozen.items() if not fnmatchcase(f"{name}/{key}", only)}
        store.write(name, kept | {key: value for key, value in found.items() if fnmatchcase(f"{name}/{key}", only)})
        print(f"{name}: {len(found)} entries, {_spent(started)}", flush=True)
    return min(failed, 1)


def compare(root: Path, quick: bool = False, only: str = "*", verbose: bool = False) -> int:
    """Print every entry that differs; return 4 if there is one, else 0."""
    tolerances, compared, wrong, skipped = store.read_tolerances(), 0, 0, 0
    for name, unit in selected(quick, only).items():
        started, frozen = (time.perf_counter(), time.process_time()), store.read(name)
        try:
            found = unit(root)
        except Skip as reason:
            print(f"skipped {name}: {reason}", flush=True)
            skipped += 1
            continue
        except Exception as error:
            traceback.print_exc()
            print(f"{name}: failed: {type(error).__name__}: {error}", flush=True)
            wrong += 1
            continue
        compared += sum(fnmatchcase(f"{name}/{key}", only) for key in frozen)
        for line in store.differences(name, frozen, found, tolerances, only):
            wrong += 1
            print(line, flush=True)
        if verbose:
            print(f"{name}: {_spent(started)}", flush=True)
    print(f"{compared:,} frozen values compared, {wrong:,} differ, {skipped} units skipped", flush=True)
    return 4 if wrong else 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("action", choices=["freeze", "compare"])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="entries, as in 'small/cider/pairs/*'")
    parser.add_argument("--quick", action="store_true", help="the part that takes less than a minute")
    parser.add_argument("--work", type=Path, help="folder of labels, kept and used again; by default a fresh one")
    parser.add_argument("--verbose", action="store_true", help="print the seconds of every unit")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="golden-") as fresh:
        root = Path(fresh) if given.work is None else given.work.absolute()
        if given.action == "freeze":
            return freeze(root, given.quick, given.only)
        return compare(root, given.quick, given.only, given.verbose)


if __name__ == "__main__":
    sys.exit(main())
