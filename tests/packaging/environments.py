"""Environments of their own, commands that run in them outside the checkout, and captions to label there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = "a the man dog on red bus two cats in street".split()  # noqa: SIM905
READ = """from relabel_train.lookup import open_lookup
lookup = open_lookup("labels/mine/exports/test/lookup/{label}")
print(lookup.block(lookup.rows_of(["mine:c0", "mine:c9"])).shape)
"""
"""Program that reads a lookup of the captions and prints (2, 2)."""


def attempt(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that does not see this environment."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "RELABEL_DATA", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | {"HF_HUB_OFFLINE": "1"}
    words = list(map(str, command))
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that must succeed; return its standard output."""
    result = attempt(*command, cwd=cwd)
    assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def need_registry(package: str) -> None:
    """Skip the test if pip cannot ask for a package."""
    if attempt(sys.executable, "-m", "pip", "index", "versions", package, cwd=ROOT).returncode:
        pytest.skip("no package registry can be reached")


def make_environment(folder: Path, *requirements: str | Path) -> Path:
    """Make an environment in a folder, with what `pip install` is to install; return its `bin`."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", *requirements, cwd=folder)
    return folder / "bin"


def write_captions(folder: Path) -> None:
    """Write `captions.jsonl` of twelve images with four captions each."""
    texts = [" ".join(WORDS[i % 5 : 6 + i % 5]) for i in range(48)]
    lines = [{"caption_id": f"c{i}", "image_id": f"i{i // 4}", "split": "test", "text": t} for i, t in enumerate(texts)]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
