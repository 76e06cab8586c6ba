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
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [_module(file) for file in files if ">>> " in file.read_text(encoding="utf-8")]


def _module(file: Path) -> str:
    """Return the dotted name of a source file: `pipeline/relabel/core/errors.py` is `relabel.core.errors`."""
    parts = file.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)  # an example may write files
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed
