"""Writer of the figures in docs/reliability.md: ``python -m tests.drills.figures REPORT... [--into DOCUMENT]``."""

from __future__ import annotations

import argparse
import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START, STOP = "<!-- figures: written by tests/drills/figures.py -->\n", "<!-- end of figures -->"


def lines(reports: list[dict[str, Any]]) -> Iterator[str]:
    """Format commands, machine and counts as Markdown."""
    yield "```"
    for report in reports:
        yield shlex.join(without_places(report["command"]))
    yield "```\n"
    counts: dict[str, Counter[str]] = {}
    places, ends = [], []
    for report in reports:
        machine, minutes = report["machine"], f"{report['seconds'] / 60:.0f} minutes"
        system = "-".join(machine["platform"].split("-")[:2])
        places.append(f"{machine['cores']} cores of {machine['processor']}, {system}, Python {machine['python']}")
        outcome = ", ".join(f"{count} {name}" for name, count in sorted(report["tests"].items()))
        ends.append(f"{report['started']}, seed {report['seed']}, {minutes}: {outcome}")
        for kind, subjects in report["counts"].items():
            counts.setdefault(kind, Counter()).update(subjects)
    yield f"Machine: {'; '.join(dict.fromkeys(places))}. Tests, in the order of the commands: {'; '.join(ends)}."
    yield "\n| cases | total | of these |"
    yield "|---|---:|---|"
    for kind, counter in sorted(counts.items()):
        each = ", ".join(f"{subject} {count:,}" for subject, count in counter.most_common() if count)
        yield f"| {kind} | {counter.total():,} | {each} |"


def without_places(command: list[str]) -> list[str]:
    """Remove options that name folders and files, and those of pytest's output."""
    remaining, skip = [], False
    for word in command:
        if not skip and word not in ("-s", "-q", "-p", "--basetemp", "--drill-report"):
            remaining.append(word)
        skip = word in ("-p", "--basetemp", "--drill-report")
    return remaining


def put(reports: list[Path], document: Path) -> None:
    """Replace the figures of a document."""
    before, rest = document.read_text(encoding="utf-8").split(START)
    after = rest.split(STOP)[1]
    body = "\n".join(lines([json.loads(path.read_text(encoding="utf-8")) for path in reports]))
    document.write_text(f"{before}{START}\n{body}\n\n{STOP}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=Path("docs/reliability.md"))
    args = parser.parse_args()
    put(args.reports, args.into)
