"""Contract: no command replaces, moves or deletes a file that relabel did not write, for any path, name or label. It
ends with exit code 2 or 4 and a line that names the path or the name.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.relabel_cli.runner import invoke

PARAMS = """
ingest: {dataset: mine, namespace: coco, format: jsonl, path: captions.jsonl}
sources:
  cider: {source: cider, tokenizer: lower_split}
"""


def relabel(*arguments: str) -> tuple[int, str]:
    return invoke(*arguments, "--data", "data")


@pytest.fixture(scope="module")
def built_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with an encoding and lookups, in a folder with files of the user."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "project"
    for name in ("d", "models", "project"):
        (home / name).mkdir()
        (home / name / "thesis.tex").write_text("mine")
    (folder / "params.yaml").write_text(PARAMS)
    with (folder / "captions.jsonl").open("w", encoding="utf-8") as file:
        for row in range(30):
            text = f"a {('dog', 'cat', 'bird')[row % 3]} on a {('chair', 'hill')[row % 2]} number {row // 5}"
            line = {"caption_id": str(row), "image_id": str(row // 5), "split": "train", "text": text}
            file.write(json.dumps(line) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in (["ingest"], ["encode", "--label", "cider", "--split", "train"]):
            assert relabel(*command)[0] == 0
        assert relabel("export", "lookup", "--label", "cider")[0] == 0
    return home


@pytest.fixture
def home(built_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy that tests may change; the project in it is the working directory."""
    home = shutil.copytree(built_folder, tmp_path / "home")
    monkeypatch.chdir(home / "project")
    return home


def files(folder: Path) -> dict[str, bytes | None]:
    """Return everything below a folder except locks."""
    below = [path for path in folder.rglob("*") if path.suffix != ".lock" and path.name != ".work"]
    return {p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in below}


OTHER = ("--format", "jsonl", "--path", "captions.jsonl")
PLAN = ("export", "batches", "--label", "cider", "--batch-size", "8", "--epochs", "1", "--name")


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ((*PLAN, "{home}/d"), 2, "/d' cannot name"),
        (("tune", "fuse", "--parts", "cider", "--out", "{home}/models"), 4, "{home}/models: found "),
        (("tune", "sbert", "--out", "labels/mine/corpus"), 4, "found corpus mine, where only an older"),
        (("tune", "bert_sts", "--out", "labels/mine/exports/train/lookup"), 4, "lookup: found "),
        (("tune", "bert_sts", "--out", "captions.jsonl"), 4, "captions.jsonl: found "),
        (("tune", "bert_sts", "--out", "."), 2, "'.' cannot be the folder of an artefact"),
        (("encode", "--split", "train", "--label", "../../../../evil"), 2, "'../../../../evil'"),
        (
            ("encode", "--split", "train", "--label", "cider", "--set", "sources={{'.': {{source: cider}}}}"),
            2,
            "'.' can",
        ),
        (("encode", "--split", "..", "--label", "cider"), 2, "no split .."),
        (("ingest", "--dataset", "/tmp"), 2, "ingest.dataset"),
        (("neighbours", "--label", "cider", "--candidates", "../train"), 2, "'../train'"),
        (("fetch", "../models"), 2, "'../models'"),
    ],
)
def test_a_command_leaves_every_file_as_it_was(command: tuple[str, ...], code: int, message: str, home: Path) -> None:
    before = files(home)
    exit_code, output = relabel(*(part.format(home=home) for part in command))
    assert (exit_code, message.format(home=home) in output) == (code, True), output
    assert len(output.splitlines()) < 8
    assert files(home) == before


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        (
            "data/word2vec/mine",
            ("tune", "cbow", "--set", "tune.cbow={splits: [train], tokenizer: lower_split, width: 4}"),
        ),
        ("labels/mine/encodings/train/same_image", ("encode", "--split", "train", "--label", "same_image")),
        ("labels/mine/exports/train/batches/p", (*PLAN, "p")),
        (
            "labels/mine/neighbours/train/captions/cider",
            ("neighbours", "--label", "cider", "--candidates", "train", "-k", "3"),
        ),
        ("labels/other/corpus", ("ingest", "--dataset", "other", *OTHER)),
    ],
)
def test_files_at_the_path_of_an_artefact_stay(folder: str, command: tuple[str, ...], home: Path) -> None:
    Path(folder).mkdir(parents=True)
    (Path(folder) / "GoogleNews.bin").write_text("mine")
    before = files(home)
    code, output = relabel(*command)
    assert (code, f"{folder}: found something else" in output) == (4, True), output
    assert files(home) == before


def test_foreign_files_in_an_artefact_stop_its_replacement(home: Path) -> None:
    corpus = Path("labels/mine/corpus")
    (corpus / "notes.txt").write_text("mine")
    before = files(home)
    code, output = relabel("ingest", "--set", "ingest.rows_per_shard=7")
    assert (code, "found notes.txt, which relabel did not write" in output) == (4, True), output
    assert files(home) == before
    assert relabel("ingest")[0] == 0
