"""Contract: any change of the captions is found by the next command, whatever the size and time of the changed file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Project

LINES = "caption_id,image_id,text\n1,a,a dog\n2,b,two cats\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Project]:
    """Return a function that opens the project of a folder of captions; a change counts at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("relabel.store.files._SETTLED", -60.0)
    (tmp_path / "captions/more").mkdir(parents=True)
    (tmp_path / "captions/a.csv").write_text(LINES)

    def project(**values: object) -> Project:
        given = {"ingest.dataset": "mine"} | {f"ingest.{n}": v for n, v in values.items()}
        return Project(load_config(None, [], given), Runtime())

    stages.ingest(project(path="captions")).run()
    return project


def test_captions_that_were_only_copied_are_accepted(project: Callable[..., Project]) -> None:
    Path("copy.csv").write_text(LINES)
    Path("copy.csv").replace("captions/a.csv")
    assert len(project().corpus) == 2


def same_size_and_time() -> None:
    before = Path("captions/a.csv").stat()
    Path("captions/a.csv").write_text(LINES.replace("dog", "cat"))
    os.utime("captions/a.csv", ns=(before.st_atime_ns, before.st_mtime_ns))


def new_file_below() -> None:
    Path("captions/more/b.csv").write_text(LINES.replace("1,a", "3,c").replace("2,b", "4,d"))


def new_folder() -> None:
    Path("captions/new").mkdir()
    Path("captions/new/b.csv").write_text(LINES.replace("1,a", "3,c").replace("2,b", "4,d"))


def another_file_behind_a_link() -> None:
    Path("other.csv").write_text(LINES.replace("dog", "cow"))
    Path("captions/a.csv").unlink()
    Path("captions/a.csv").symlink_to("../other.csv")


@pytest.mark.parametrize(
    "change", [same_size_and_time, new_file_below, new_folder, another_file_behind_a_link], ids=lambda c: c.__name__
)
def test_changed_captions_are_named(project: Callable[..., Project], change: Callable[[], None]) -> None:
    change()
    with pytest.raises(CheckError, match=r"another (a|more/b|new/b)\.csv"):
        project().corpus  # noqa: B018


def test_a_changed_parameter_is_named(project: Callable[..., Project]) -> None:
    with pytest.raises(CheckError, match="namespace"):
        project(namespace="ours").corpus  # noqa: B018


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"captions_per_image": 5}, "captions_per_image 5 is for the format scan, not csv"),
        ({"ids": "shard"}, "ids shard is for the format webdataset, not csv"),
        ({"url": "s3://bucket"}, "path and url exclude each other"),
    ],
)
def test_a_parameter_without_effect_is_refused(project: Callable[..., Project], given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stages.ingest(project(path="captions", **given))
