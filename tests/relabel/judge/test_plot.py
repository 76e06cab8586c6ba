"""Contract: pictures are PNGs of every label, drawn without a display. In the picture of all evaluation sets, every
label has a row in every panel, figures are printed, and labels that a set does not score are marked.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from relabel.core.numeric.statistics import Interval
from relabel.judge.figures import Estimate
from relabel.judge.plot import draw_summary
from relabel.judge.tables import Column, Cost

COLUMNS = [
    Column("vsts", {"one": Estimate(0.5, Interval(0.4, 0.6)), "two": Estimate(0.75)}),
    Column("sick", {"two": Estimate(None)}),
]


@pytest.mark.parametrize("costs", [{}, {"one": Cost(1000.0, 8.0), "two": Cost(3.0, 8.0)}])
def test_panels_show_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, costs: dict[str, Cost]) -> None:
    shown: list[list[str]] = []
    save = Figure.savefig

    def record(figure: Figure, *args: object, **options: object) -> None:
        shown.extend([text.get_text() for text in axes.texts] for axes in figure.axes if axes.get_visible())
        save(figure, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", record)
    draw_summary(COLUMNS, costs, tmp_path / "all.png")
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert shown[:2] == [["50.0", "75.0"], ["not scored", "undefined"]]
    assert shown[2:] == ([["1,000", "3"]] if costs else [])
