"""Contract: no command replaces, moves or deletes a file that relabel did not write, for any path, name or label. It
ends with exit code 2 or 4 and a line that names the path or the name.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from tests.relabel_cli.runner import contents, invoke

PARAMS = """
ingest: {dataset: mine, namespace: coco, format: jsonl, path: captions.jsonl}
sources:
  cider: {source: cider, tokenizer: lower_split}
"""


def relabel(command: str) -> tuple[int, str]:
    return invoke(*shlex.split(command), "--data", "data")


@pytest.fixture(scope="module")
def built_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with an encoding and lookups, in a folder with files of the user."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "project"
    for name in ("d", "models", "project"):
        (home / name).mkdir()
        (home / name / "thesis.tex").write_text("mine")
    (folder / "params.yaml").write_text(PARAMS)
    texts = [
        f"a {('dog', 'cat', 'bird')[row % 3]} on a {('chair', 'hill')[row % 2]} number {row // 5}" for row in range(30)
    ]
    rows = [{"caption_id": row, "image_id": row // 5, "split": "train", "text": text} for row, text in enumerate(texts)]
    (folder / "captions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in ("ingest", "encode --label cider --split train", "export lookup --label cider"):
            assert relabel(command)[0] == 0
    return home


@pytest.fixture
def home(built_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy that tests may change; the project in it is the working directory."""
    home = shutil.copytree(built_folder, tmp_path / "home")
    monkeypatch.chdir(home / "project")
    return home


PLAN = "export batches --label cider --batch-size 8 --epochs 1 --name"


def check_that_nothing_changes(command: str, code: int, message: str, home: Path) -> None:
    before = contents(home)
    exit_code, output = relabel(command.replace("HOME", str(home)))
    assert (exit_code, message.replace("HOME", str(home)) in output) == (code, True), output
    assert len(output.splitlines()) < 8
    assert contents(home) == before


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (f"{PLAN} HOME/d", 2, "/d' cannot name"),
        ("tune fuse --parts cider --out HOME/models", 4, "HOME/models: found "),
        ("tune sbert --out labels/mine/corpus", 4, "found corpus mine; only an older"),
        ("tune bert_sts --out labels/mine/exports/train/lookup", 4, "lookup: found "),
        ("tune bert_sts --out captions.jsonl", 4, "captions.jsonl: found "),
        ("tune bert_sts --out .", 2, "'.' cannot be the folder of an artefact"),
        ("encode --split train --label ../../../../evil", 2, "'../../../../evil'"),
        ("encode --split train --label cider --set \"sources={'.': {source: cider}}\"", 2, "'.' can"),
        ("encode --split .. --label cider", 2, "no split '..'"),
        ("ingest --dataset /tmp", 2, "ingest.dataset"),
        ("neighbours --label cider --candidates ../train", 2, "'../train'"),
        ("fetch ../models", 2, "'../models'"),
    ],
)
def test_a_command_leaves_every_file_as_it_was(command: str, code: int, message: str, home: Path) -> None:
    check_that_nothing_changes(command, code, message, home)


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("data/word2vec/mine", "tune word2vec --width 4 --tokenizer lower_split"),
        ("labels/mine/encodings/train/same_image", "encode --split train --label same_image"),
        ("labels/mine/exports/train/batches/p", f"{PLAN} p"),
        ("labels/mine/neighbours/train/captions/cider", "neighbours --label cider --candidates train -k 3"),
        ("labels/other/corpus", "ingest --dataset other --format jsonl --path captions.jsonl"),
    ],
)
def test_files_at_the_path_of_an_artefact_stay(folder: str, command: str, home: Path) -> None:
    Path(folder).mkdir(parents=True)
    (Path(folder) / "GoogleNews.bin").write_text("mine")
    check_that_nothing_changes(command, 4, f"{folder}: found something else", home)


def test_foreign_files_in_an_artefact_stop_its_replacement(home: Path) -> None:
    Path("labels/mine/corpus/notes.txt").write_text("mine")
    message = "notes.txt was not written by relabel"
    check_that_nothing_changes("ingest --set ingest.duplicates=drop", 4, message, home)
    assert relabel("ingest")[0] == 0
