"""Contract: the picture is a PNG of every label, drawn without a display. Bins and points are means of their pairs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from relabel.corpus import Corpus
from relabel.judge import JudgeParams
from relabel.judge.calibration import agreement_points, bin_pairs, calibration_points
from relabel.judge.compare import compare
from relabel.judge.cxc import score_cxc
from relabel.judge.cxc_report import CxcFigures, PairScores, baseline, cxc_report
from relabel.judge.plot import draw
from relabel.store.workdir import Work


@pytest.fixture(scope="module")
def scored(few: Corpus, odd: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> PairScores:
    folder = tmp_path_factory.mktemp("odd")
    (folder / ".done").mkdir()
    work = Work(folder, {"label": "odd", "params": {"source": "odd", "pooling": "max"}})
    score_cxc(few, odd.Relevance(few, range(len(few))), odd.Source, "test", work)
    return PairScores.open(folder, work.facts)


def figures(labels: list[PairScores]) -> list[CxcFigures]:
    return [compare(scored, JudgeParams(resamples=20, draws=0)) for scored in labels]


def test_png_of_a_size_that_grows_with_the_labels(scored: PairScores, tmp_path: Path) -> None:
    import matplotlib.image

    before = sys.modules.get("matplotlib.pyplot")
    heights = []
    for count in (1, 2):
        labels = [
            baseline(scored),
            *(replace(scored, label=f"odd{i}") for i in range(count - 1)),
        ]
        draw(labels, cxc_report(figures(labels)).records, tmp_path / f"{count}.png")
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


def test_a_label_without_scores_is_drawn(scored: PairScores, tmp_path: Path) -> None:
    at = scored.tables["sits"].schema.get_field_index("relevance")
    tables = {t: v.set_column(at, "relevance", pa.nulls(len(v), pa.float64())) for t, v in scored.tables.items()}
    labels = [replace(scored, label="nothing", tables=tables)]
    draw(labels, cxc_report(figures(labels)).records, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_bins_are_means_of_equally_many() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=1000), generator.uniform(0, 5, 1000)
    bins = bin_pairs(x, y, 10)
    order = np.argsort(x)
    assert bins.n.tolist() == [100] * 10
    for b in range(10):
        rows = order[100 * b : 100 * (b + 1)]
        assert bins.relevance[b] == pytest.approx(x[rows].mean(), abs=1e-12)
        assert bins.mean[b] == pytest.approx(y[rows].mean(), abs=1e-12)
        assert bins.spread[b] == pytest.approx(y[rows].std(), abs=1e-12)


def test_ties_share_a_bin() -> None:
    x = np.repeat([0.0, 1.0, 2.0], [70, 20, 10])
    bins = bin_pairs(x, x * 2, 20)
    assert bins.relevance.tolist() == [0, 1, 2]
    assert bins.mean.tolist() == [0, 2, 4]
    assert bins.n.tolist() == [70, 20, 10]
    assert not len(bin_pairs(np.empty(0), np.empty(0)).mean)


def test_points_are_flat_and_json(scored: PairScores) -> None:
    labels = [baseline(scored), scored]
    points = agreement_points(cxc_report(figures(labels)).records)
    assert {p["label"] for p in points} == {"same_image", "odd"}
    assert all(isinstance(p["pearson"], float) for p in points)
    assert {(p["task"], p["subset"]) for p in points if p["label"] == "same_image"} == {("sts", "all"), ("sits", "all")}
    levels = calibration_points(labels, bins=5)
    json.dumps([points, levels], allow_nan=False)
    all_levels = [p for p in levels if (p["label"], p["task"]) == ("odd", "sits")]
    table = scored.tables["sits"].to_pylist()
    assert sum(p["n"] for p in all_levels) == sum(
        r["relevance"] is not None and r["method"] == "c2i_intrasim" for r in table
    )
    assert [p["relevance"] for p in all_levels] == sorted(p["relevance"] for p in all_levels)
