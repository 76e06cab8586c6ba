"""Rows of tab-separated files with a header and a score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relabel.core.errors import CheckError
from relabel.core.parsing import read_lines


def read_rows(path: Path, header: Sequence[str], score: str) -> Iterator[tuple[list[str], float]]:
    """Yield the cells of every row, and the number in the column `score`."""
    column = list(header).index(score)
    for number, (where, line) in enumerate(read_lines(path)):
        cells = line.split("\t")
        if number == 0:
            if cells != list(header):
                raise CheckError(f"expected the columns {', '.join(header)}", where=where, todo="Fetch it again.")
            continue
        # The published files may end in an empty line.
        if not line.strip():
            continue
        # NaN stands for both faults, a wrong count of cells and no number, which have one message.
        try:
            value = float(cells[column]) if len(cells) == len(header) else float("nan")
        except ValueError:
            value = float("nan")
        if value != value:
            problem = f"expected {len(header)} cells, and a number in column {score}"
            raise CheckError(problem, where=where, todo="Fetch it again.")
        yield cells, value
