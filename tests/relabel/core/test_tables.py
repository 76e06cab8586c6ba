"""Contract: a table has the same content in every format, and characters with a meaning in a format are escaped."""

from __future__ import annotations

import pytest

from relabel.core.tables import Table, align, csv_text, duration, latex, markdown, markdown_row, text

TABLE = Table("Title & more", ("label", "r"), (("a_b", "0.5"), ("c|d", "undefined")), ("100% of it.", "Second."))


def test_text_markdown_and_latex() -> None:
    assert text(TABLE).splitlines() == [
        "Title & more",
        "",
        "label          r",
        "----------------",
        "a_b          0.5",
        "c|d    undefined",
        "",
        "  100% of it.",
        "  Second.",
    ]
    shown = markdown(TABLE).splitlines()
    assert shown[2:6] == ["| label | r |", "|---|---:|", "| a_b | 0.5 |", r"| c\|d | undefined |"]
    assert shown[-2:] == ["- 100% of it.", "- Second."]
    assert r"\caption{Title \& more}" in latex(TABLE)
    assert r"a\_b & 0.5 \\" in latex(TABLE)
    assert r"100\% of it." in latex(TABLE)
    assert latex(TABLE).count(r"\begin") == latex(TABLE).count(r"\end") == 2


def test_a_wide_table_is_divided_into_blocks_that_fit() -> None:
    header = ("label", *(f"column {i}" for i in range(8)))
    table = Table("A title of words " * 6, header, (("sbert", *"12345678"), ("cider", *"abcdefgh")), ("A note. " * 20,))
    for width in (40, 60, 80):
        lines = text(table, width).splitlines()
        assert max(map(len, lines)) <= width
        shown = [line.split() for line in lines if line.startswith(("sbert", "cider"))]
        assert "".join(cell for first, *cells in shown for cell in cells if first == "sbert") == "12345678"
        assert "".join(cell for first, *cells in shown for cell in cells if first == "cider") == "abcdefgh"
    assert sum(line.startswith("label") for line in text(table, 100).splitlines()) == 1


def test_a_cell_wider_than_the_table_is_not_cut() -> None:
    table = Table("T", ("label", "all"), (("sbert", "0.123456789"),))
    assert "sbert  0.123456789" in text(table, 10)


def test_csv_accepts_records_of_different_keys() -> None:
    assert csv_text([{"a": 1, "b": None}, {"c": 'x,"y'}]) == 'a,b,c\n1,,\n,,"x,""y"'


def test_columns_are_padded_to_the_left_or_to_the_right() -> None:
    assert align([("a", "1", "x"), ("bbb", "22", "")], right=[1]) == ["a     1  x", "bbb  22"]
    assert align([]) == []


def test_a_markdown_row_escapes_cell_separators() -> None:
    assert markdown_row(["a|b", ""]) == r"| a\|b |  |"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.7, "1 min 0 s"), (119.8, "2 min 0 s"), (3599.2, "59 min 59 s"), (5400, "1.5 h")],
)
def test_durations_carry_rounded_seconds_over(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
