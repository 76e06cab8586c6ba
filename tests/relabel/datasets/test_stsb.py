"""Contract: the STS-B reader parses quoted fields as CSV. A row without two sentences and a score is refused, with file
and line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.core.errors import CheckError
from relabel.datasets.evaluation_sets.stsb import read_stsb


def test_reads_quotes_commas_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "stsb-en-dev.csv"
    path.write_bytes(b'"A dog, runs",a cat,4.2\r\n"He said, ""go""",he said go,0\r\n"two\nlines",x,1.0\r\ny,z,5\r\n')
    assert read_stsb(path) == [
        ("A dog, runs", "a cat", 4.2, 1),
        ('He said, "go"', "he said go", 0.0, 2),
        ("two\nlines", "x", 1.0, 3),
        ("y", "z", 5.0, 5),
    ]


BAD = {
    "two fields": (b"a,b,1\na,b\n", 2, "expected the columns"),
    "no number": (b"a,b,c\n", 1, "a number in score"),
    "after a sentence of two lines": (b'"a\nb",c,1\nd,e,x\n', 3, "a number in score"),
    "an open quote": (b'a,b,1\n"c,d,1\n', 2, "not CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_refused_by_file_and_line(case: str, tmp_path: Path) -> None:
    content, line, problem = BAD[case]
    path = tmp_path / "stsb-en-dev.csv"
    path.write_bytes(content)
    with pytest.raises(CheckError) as caught:
        read_stsb(path)
    assert caught.value.where == f"{path}:{line}"
    assert problem in str(caught.value)
