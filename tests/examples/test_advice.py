"""Contract: the command that a message names works. Whoever runs it, and again what they asked for, has the result."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.examples.conftest import small_coco
from tests.examples.documents import words
from tests.golden.today import Folder

ADVISED = re.compile(r"[`']?(relabel [a-z][^`\n]*?)[`'.]?(?:\n|`|$)")
COMMANDS = (
    "neighbours --label cider --candidates test",
    "correlate --cxc --label word2vec --split val",
    "nearest 'a dog' --label sbert",
    "false-negatives --label sbert --split test",
    "report --split train",
    "export lookup --label word2vec --split test",
    "export faiss --label sbert --split test --index IVF4,Flat",
    "export batches --label sbert --split train --batch-size 8 --epochs 1 --seed 0 --sampler graded",
    "export trec --label cider --split test",
    "export hf --label sbert --split test",
    "export pairs --label sbert --split test",
)
"""What a user asks for in a project in which nothing has been done."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with captions and parameters alone."""
    path = tmp_path_factory.mktemp("advice")
    with pytest.MonkeyPatch.context() as patch:
        small_coco(path, patch)
    shutil.rmtree(path / "labels")
    return path


def follow(session: Folder, arguments: list[str], left: int) -> None:
    """Run a command; while it fails, run the command that it names."""
    while (result := session.relabel(*arguments)).code:
        advised = ADVISED.findall(result.err)
        if not advised or not left:
            raise AssertionError(f"relabel {' '.join(arguments)}: {result.err}")
        left -= 1
        follow(session, words(advised[-1]), left)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("command", COMMANDS)
def test_advice_leads_to_the_result(
    command: str, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELABEL_DATA", str(tmp_path / "data"))
    follow(Folder(shutil.copytree(written, tmp_path / "project")), words(f"relabel {command}"), 6)
