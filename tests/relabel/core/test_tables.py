"""Contract: a table says the same in every form; cells are escaped where a form gives them a meaning."""

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


def test_csv_takes_records_of_different_keys() -> None:
    assert csv_text([{"a": 1, "b": None}, {"c": 'x,"y'}]) == 'a,b,c\n1,,\n,,"x,""y"'


def test_columns_are_padded_to_the_left_or_to_the_right() -> None:
    assert align([("a", "1", "x"), ("bbb", "22", "")], right=[1]) == ["a     1  x", "bbb  22"]
    assert align([]) == []


def test_a_markdown_row_escapes_what_would_end_a_cell() -> None:
    assert markdown_row(["a|b", ""]) == r"| a\|b |  |"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.7, "1 min 0 s"), (119.8, "2 min 0 s"), (3599.2, "59 min 59 s"), (5400, "1.5 h")],
)
def test_durations_carry_rounded_seconds_over(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
