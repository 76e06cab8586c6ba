"""Freeze what relabel computes, or compare it with what is frozen.

`compare` prints a line for every entry that differs and exits with 4 if there is one. A change of a value on purpose
raises its version (see `versions.py`), runs `freeze --only PATTERN` and commits the values alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from tests.golden import store, versions
from tests.golden.store import Values
from tests.golden.today import Skip
from tests.golden.units import all_units


def computed(root: Path, quick: bool, only: str) -> Iterator[tuple[str, Values | Exception]]:
    """Yield the name of each unit that can hold an entry of the pattern, and its values or why there are none."""
    for name, (in_quick, unit) in all_units().items():
        entries = [f"{name}/{key}" for key in store.read(name)]
        if (quick and not in_quick) or not any(fnmatchcase(entry, only) for entry in (*entries, f"{name}/")):
            continue
        try:
            yield name, unit(root)
        except Exception as error:  # the other units are of use without this one
            if not isinstance(error, Skip):
                traceback.print_exc()
            yield name, error


def freeze(root: Path, quick: bool = False, only: str = "*") -> int:
    """Write the values of units; return 1 if one failed."""
    code = 0
    for name, found in computed(root, quick, only):
        if isinstance(found, Exception):
            print(f"not frozen: {name}: {type(found).__name__}: {found}", flush=True)
            code = code if isinstance(found, Skip) else 1
            continue
        kept = {key: value for key, value in store.read(name).items() if not fnmatchcase(f"{name}/{key}", only)}
        store.write(name, kept | {key: value for key, value in found.items() if fnmatchcase(f"{name}/{key}", only)})
        print(f"{name}: {len(found)} entries", flush=True)
    versions.record()
    return code


def compare(root: Path, quick: bool = False, only: str = "*") -> int:
    """Print every entry that differs; return 4 if there is one, else 0."""
    tolerances, compared, wrong, skipped = store.read_tolerances(), 0, 0, 0
    for name, found in computed(root, quick, only):
        if isinstance(found, Skip):
            skipped += 1
            print(f"skipped {name}: {found}", flush=True)
            continue
        frozen = store.read(name)
        compared += sum(fnmatchcase(f"{name}/{key}", only) for key in frozen)
        lines = [f"{name}: failed: {type(found).__name__}: {found}"]
        if not isinstance(found, Exception):
            lines = list(store.differences(name, frozen, found, tolerances, only))
        wrong += len(lines)
        for line in lines:
            print(line, flush=True)
    print(f"{compared:,} frozen values compared, {wrong:,} differ, {skipped} units skipped", flush=True)
    return 4 if wrong else 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("action", choices=["freeze", "compare"])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="entries, as in 'small/cider/pairs/*'")
    parser.add_argument("--quick", action="store_true", help="the part that takes less than a minute")
    given = parser.parse_args()
    action = {"freeze": freeze, "compare": compare}[given.action]
    with tempfile.TemporaryDirectory(prefix="golden-") as root:
        return action(Path(root), given.quick, given.only)


if __name__ == "__main__":
    sys.exit(main())
