"""Contract: `relabel verify` ends with exit code 0 if all files are intact, 4 if any file differs, and 3 if the folder
does not exist. Each line names a file below the folder as the user wrote it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relabel_cli.runner import invoke

from relabel.store.artefact import Recipe, build


def relabel(*arguments: str) -> tuple[int, str]:
    return invoke("verify", *arguments)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a corpus and an encoding of it in the working directory."""
    monkeypatch.chdir(tmp_path)
    mine = Path("labels/mine")
    build(mine / "corpus", Recipe("corpus", "mine", dict, {}, lambda work: work.file("a", Path.touch)))
    encoding = Recipe("encoding", "cider", dict, {"corpus": "abc"}, lambda work: work.file("a", Path.touch))
    build(mine / "encodings/test/cider", encoding)
    return mine


def test_damaged_files(mine: Path) -> None:
    (mine / "encodings/test/cider/a").write_text("x")
    (mine / "corpus/a").unlink()
    (mine / "encodings/test/cider/b").touch()
    code, output = relabel("labels")
    assert code == 4
    for line in (
        "damaged: labels/mine/encodings/test/cider/a: expected sha256",
        "missing: labels/mine/corpus/a: ",
        "stray: labels/mine/encodings/test/cider/b: ",
        "3 problems",
    ):
        assert line in output


@pytest.mark.usefixtures("mine")
def test_missing_folder() -> None:
    assert relabel("none")[0] == 3
    assert relabel("labels/mine/corpus/manifest.json")[0] == 3
