"""Contract: every example in a docstring of the three packages runs and prints the result that it shows."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline/relabel", "cli/relabel_cli", "training/relabel_train")


def modules_with_examples() -> list[str]:
    """Return the dotted names of the modules whose source holds a doctest prompt."""
    names = []
    for package in PACKAGES:
        root = (ROOT / package).parent
        for file in sorted((ROOT / package).rglob("*.py")):
            if ">>> " in file.read_text(encoding="utf-8"):
                names.append(".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"))
    return names


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)  # an example may write files
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed
