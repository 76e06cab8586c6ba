"""Contract: CxC's own protocol has units by side and kind, one row per label, task and subset, the known figures of
same_image, and published models for the test split only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.corpus import Corpus
from relabel.datasets.cxc import human_scores
from relabel.judge import JudgeParams
from relabel.judge.compare import compare
from relabel.judge.cxc import score_cxc
from relabel.judge.cxc_report import CxcFigures, PairScores
from relabel.judge.cxc_sampled import pair_units, sampled_agreement, sampled_report
from relabel.sources.same_image import SameImage, SameImageRelevance
from relabel.store.workdir import Work


@pytest.fixture(scope="module")
def same_image(cxc_test: Corpus, tmp_path_factory: pytest.TempPathFactory) -> PairScores:
    folder = tmp_path_factory.mktemp("same")
    (folder / ".done").mkdir()
    work = Work(folder, {"label": "same_image", "params": {"source": "same_image", "pooling": "max"}})
    score_cxc(cxc_test, SameImageRelevance(cxc_test, range(len(cxc_test)), "max"), SameImage, "test", work)
    return PairScores.open(work.folder, work.facts)


def drawn(scored: PairScores, draws: int) -> CxcFigures:
    return compare(scored, JudgeParams(resamples=0, draws=draws))


def test_units() -> None:
    sts, sits, sis = (human_scores(task, "test") for task in ("sts", "sits", "sis"))
    (left,) = pair_units(sts, "left", "item")
    assert len(set(left.tolist())) == len(set(sts.left))
    first, second = pair_units(sts, "either", "item")
    assert len({*first.tolist(), *second.tolist()}) == len({*sts.left, *sts.right}) == 25_000
    (image,) = pair_units(sts, "left", "image")
    assert len(set(image.tolist())) <= 5_000
    assert [len(pair_units(sits, side, "item")) for side in ("left", "either")] == [1, 1]  # type: ignore[arg-type]
    assert len(set(pair_units(sits, "left", "item")[0].tolist())) == len(set(sits.right))
    assert len(pair_units(sis, "either", "image")) == 2


def test_the_known_figures_of_same_image(same_image: PairScores) -> None:
    records = sampled_agreement(same_image, draws=300)
    rows = {(record["task"], record["subset"]): record["sampled_spearman"] for record in records}
    assert rows == {
        ("sts_sampled", "all"): pytest.approx(0.699, abs=0.0015),
        ("sis_sampled", "all"): None,  # constant relevance
        ("sits_sampled", "all"): pytest.approx(0.784, abs=0.0015),
        ("sits_sampled", "c2i_intrasim"): None,
    }


def test_the_report(same_image: PairScores) -> None:
    report = sampled_report([drawn(same_image, 20)], draws=20)
    (table,) = report.tables
    assert table.header == ("label", "STS", "SIS", "SITS all", "SITS non-GT", "SITS as printed")
    assert table.rows[0][0] == "same_image"
    assert table.rows[0][2] == "undefined"
    assert ("ALIGN [ALIGN]", "72.9", "77.2", "", "", "67.6") in table.rows
    assert ("PromCSE [PromCSE]", "74.0", "", "", "", "") in table.rows
    assert all(len(row) == len(table.header) for row in table.rows)
    assert "seed 0" in table.notes[0]
    assert [r["units"] for r in report.records] == [25_000, None, 5_000, None]
    assert report.records[0]["draws"] == 20
    assert sampled_report([drawn(same_image, 0)], draws=0).tables == ()
    assert sampled_report([]).tables == ()


def test_no_published_models_for_val(cxc_val: Corpus, tmp_path: Path) -> None:
    (tmp_path / ".done").mkdir()
    work = Work(tmp_path, {"label": "same_image", "params": {"source": "same_image", "pooling": "max"}})
    score_cxc(cxc_val, SameImageRelevance(cxc_val, range(len(cxc_val)), "max"), SameImage, "val", work)
    (table,) = sampled_report([drawn(PairScores.open(work.folder, work.facts), 5)], draws=5).tables
    assert table.header[-1] == "SITS non-GT"
    assert len(table.rows) == 1
