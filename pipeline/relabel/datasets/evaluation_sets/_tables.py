"""Reader of CSV and TSV files, the format of most evaluation sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from relabel.core.errors import CheckError
from relabel.core.parsing import read_csv_records


def read_rows(
    path: Path, columns: Sequence[str], numbers: Sequence[str], separator: str = "\t"
) -> Iterator[tuple[str, dict[str, str], list[float]]]:
    """Yield for every row `file:line`, the cells by column, and the numbers in the columns `numbers`.

    `columns`: all columns of the file. `separator`: with a comma, cells may be quoted.
    """
    for where, row in read_csv_records(path, separator, quotes=separator == ",", names=columns):
        # Skip the header, if there is one.
        if list(row.values()) == list(columns):
            continue
        try:
            values = [float(row[name]) for name in numbers]
        except ValueError:
            values = [math.nan]
        if not all(map(math.isfinite, values)):
            problem = f"expected the columns {', '.join(columns)}, and a number in {' and '.join(numbers)}"
            raise CheckError(problem, where=where, hint="Fetch it again.")
        yield where, row, values
