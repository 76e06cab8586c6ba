"""Contract: the DVC stages of a label depend on every module of its source and on the modules of `sources/` that
these import. Every dependency in the checkout exists.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CODE = ROOT / "pipeline"
SOURCES = CODE / "relabel" / "sources"
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))["sources"]
VERBS = ("encode", "judge", "neighbours", "export")
BY_LABEL = [(verb, label) for verb in VERBS for label in STAGES[verb]["foreach"]]


def dependencies(stage: str, label: str) -> list[Path]:
    """Return the dependencies of a label's stage that belong to the checkout."""
    item = STAGES[stage]["foreach"][label]
    names = [name.replace("${key}", label) for name in STAGES[stage]["do"]["deps"]]
    names = [item[name[len("${item.") : -1]] if name.startswith("${item.") else name for name in names]
    return [ROOT / name for name in names if not name.startswith(("labels/", "data/"))]


def imported(file: Path) -> set[Path]:
    """Return the files of `sources/` that a file imports, at any depth of its code."""
    files: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("relabel.sources."):
            folder = CODE.joinpath(*str(node.module).split("."))
            names = [folder / alias.name for alias in node.names]
            files |= {path for name in (*names, folder) for path in (name.with_suffix(".py"), name / "__init__.py")}
    return {path for path in files if path.exists()}


@pytest.mark.parametrize(("stage", "label"), BY_LABEL)
def test_a_stage_depends_on_all_modules_of_its_source(stage: str, label: str) -> None:
    source = PARAMS[label]["source"]
    todo = list((SOURCES / source).rglob("*.py")) or [SOURCES / f"{source}.py"]
    needed: set[Path] = set()
    while todo:
        if (file := todo.pop()) not in needed:
            needed.add(file)
            todo += imported(file)
    assert len(needed) > 1
    dependent = dependencies(stage, label)
    assert [path for path in dependent if not path.exists()] == []
    assert {f for f in needed if not any(path in (f, *f.parents) for path in dependent)} == set()


def test_labels_of_params_have_stages() -> None:
    assert set(STAGES["encode"]["foreach"]) == set(PARAMS)
