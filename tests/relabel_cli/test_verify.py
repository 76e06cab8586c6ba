"""Contract: `relabel verify` ends with exit code 0 where all is whole, stale or not, 4 where anything is not as it was
written, 3 where there is no such folder, and 2 where there can be none; each line names the file as the user named its
folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relabel.core.layout import Layout
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel_cli.root import app


def relabel(*arguments: str) -> tuple[int, str]:
    run = CliRunner().invoke(app, ["verify", *arguments, "--quiet"])
    return run.exit_code, run.output


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A corpus and an encoding of it, in the working directory."""
    monkeypatch.chdir(tmp_path)
    layout = Layout(Path("labels"), "mine")
    build(layout.corpus, ArtefactSpec("corpus", "mine", {}, {}), lambda work: work.facts.update(digest="abc"))
    artefact = ArtefactSpec("encoding", "cider", {}, {"corpus": "abc"})
    build(layout.encoding("test", "cider"), artefact, lambda work: work.file("a", Path.touch))
    return layout


@pytest.mark.usefixtures("layout")
def test_all_is_whole() -> None:
    code, said = relabel("labels")
    assert code == 0
    assert "2 artefacts" in said
    assert "all as written" in said


def test_whole_and_stale(layout: Layout) -> None:
    build(layout.corpus, ArtefactSpec("corpus", "mine", {"size": 2}, {}), lambda work: work.facts.update(digest="new"))
    code, said = relabel("labels")
    assert code == 0
    assert "stale: labels/mine/encodings/test/cider: intact, but made from another corpus" in said


def test_not_as_written(layout: Layout) -> None:
    (layout.encoding("test", "cider") / "a").write_text("x")
    (layout.corpus / "manifest.json").unlink()
    layout.corpus.rmdir()
    os.mkfifo("labels/pipe")
    code, said = relabel("labels")
    assert code == 4
    for line in (
        "damaged: labels/mine/encodings/test/cider/a: expected sha256",
        "missing: labels/mine/corpus: expected the corpus that labels/mine/encodings/test/cider was made from, found",
        "stray: labels/pipe: ",
        "3 problems",
    ):
        assert line in said


@pytest.mark.usefixtures("layout")
def test_no_such_folder() -> None:
    assert relabel("none")[0] == 3
    assert relabel("labels/mine/corpus/manifest.json")[0] == 3
    code, said = relabel("x" * 300)
    assert (code, "File name too long" in said) == (2, True)
