"""Contract: pictures are PNGs of every label, drawn without a display. In the picture of all judged sets, every label
has a row in every panel, figures are printed, and labels that a set does not score are marked.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from relabel.core.numeric.statistics import Interval
from relabel.corpus import Corpus
from relabel.judge import JudgeParams
from relabel.judge.cxc import score_cxc
from relabel.judge.cxc_figures import PairScores, baseline, compare
from relabel.judge.figures import Estimate
from relabel.judge.plot import draw, draw_summary
from relabel.judge.report import JudgedLabel, Record
from relabel.judge.tables import Column, Cost, cxc_report
from relabel.store.workdir import Work

PARAMS = JudgeParams(resamples=20, draws=0)


@pytest.fixture(scope="module")
def scored(few: Corpus, odd: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> PairScores:
    folder = tmp_path_factory.mktemp("odd")
    score_cxc(few, odd.Relevance(few, range(len(few))), False, "test", Work(folder))
    return PairScores.open(folder, JudgedLabel(label="odd", params={"source": "odd", "pooling": "max"}), "test", True)


def records(labels: list[PairScores]) -> tuple[Record, ...]:
    return cxc_report([compare(one, PARAMS) for one in labels], PARAMS).records


def test_png_of_a_size_that_grows_with_the_labels(scored: PairScores, tmp_path: Path) -> None:
    import matplotlib.image

    before = sys.modules.get("matplotlib.pyplot")
    heights = []
    for count in (1, 2):
        labels = [
            baseline(scored),
            *(replace(scored, about=replace(scored.about, label=f"odd{i}")) for i in range(count - 1)),
        ]
        draw(labels, records(labels), tmp_path / f"{count}.png")
        pixels = matplotlib.image.imread(tmp_path / f"{count}.png")
        heights.append(pixels.shape[0])
        assert pixels.shape[1] == 1725
        levels = (pixels[..., :3] * 255).round().astype(int)
        for colour in ("D55E00", "0072B2") if count > 1 else ("D55E00",):
            rgb = [int(colour[i : i + 2], 16) for i in (0, 2, 4)]
            assert (np.abs(levels - rgb).max(axis=2) <= 2).any(), colour
    assert heights[0] < heights[1]
    assert sys.modules.get("matplotlib.pyplot") is before
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["1.png", "2.png"]


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
