"""Contract: a table has the same content in every format, and characters with a meaning in a format are escaped."""

from __future__ import annotations

from relabel.core.tables import Table, align, csv_text, duration, latex, markdown, text

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


def test_title_and_notes_are_wrapped() -> None:
    table = Table("A title of words " * 6, ("label", "r"), (("sbert", "1"),), ("A note. " * 20,))
    assert max(map(len, text(table, 40).splitlines())) <= 40


def test_csv_accepts_records_of_different_keys() -> None:
    assert csv_text([{"a": 1, "b": None}, {"c": 'x,"y'}]) == 'a,b,c\n1,,\n,,"x,""y"'


def test_columns_are_padded_to_the_left_or_to_the_right() -> None:
    assert align([("a", "1", "x"), ("bbb", "22", "")], right=[1]) == ["a     1  x", "bbb  22"]
    assert align([]) == []


def test_durations_are_rounded_to_seconds() -> None:
    assert [duration(seconds) for seconds in (0.2, 59.7, 5400)] == ["0:00:00", "0:01:00", "1:30:00"]
