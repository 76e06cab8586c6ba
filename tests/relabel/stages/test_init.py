"""Contract: init writes the repository's params.yaml for a dataset, and on request those stages of its dvc.yaml that
the dataset has, which DVC resolves outside the checkout. It replaces nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from relabel.config import Config, load_config
from relabel.core.errors import UsageError
from relabel.stages.init import init
from relabel_train.lookup import open_lookup

ROOT = Path(__file__).parents[3]


def stages(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / "dvc.yaml").read_text(encoding="utf-8"))["stages"])


def test_the_parameter_file_is_that_of_the_repository(tmp_path: Path) -> None:
    assert init(tmp_path) == [tmp_path / "params.yaml"]
    assert (tmp_path / "params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()


@pytest.mark.parametrize("path", ["my captions.csv", "yes", "a: b#c.csv"])
def test_captions_of_the_user_are_in_the_file(path: str, tmp_path: Path) -> None:
    init(tmp_path, "mine", Path(path))
    config = load_config(tmp_path / "params.yaml")
    assert (config.ingest.dataset, config.ingest.path) == ("mine", Path(path))
    assert config.model_copy(update={"ingest": Config().ingest}) == Config()


def test_nothing_is_replaced_or_partly_written(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"dvc.yaml exists"):
        init(tmp_path, dvc=True, examples=True)
    assert [file.name for file in tmp_path.iterdir()] == ["dvc.yaml"]
    with pytest.raises(UsageError, match="dataset"):
        init(tmp_path, "../mine")


def test_the_stages_of_coco_are_those_of_the_checkout(tmp_path: Path) -> None:
    """Check that a copy differs in the files of the checkout alone."""
    init(tmp_path, dvc=True)
    theirs = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    for stage in theirs["stages"].values():
        stage["deps"] = [dep for dep in stage["deps"] if not (ROOT / dep).is_file()]
    assert yaml.safe_load((tmp_path / "dvc.yaml").read_text(encoding="utf-8")) == theirs


def test_captions_without_judgements_have_no_stage_that_judges(tmp_path: Path) -> None:
    init(tmp_path, "flickr30k", dvc=True)
    assert list(stages(tmp_path)) == ["ingest", "encode", "neighbours", "export", "report"]
    assert stages(tmp_path)["ingest"]["cmd"] == ["relabel fetch flickr30k", "relabel ingest"]


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.skipif(not find_spec("dvc"), reason="dvc is not installed (the `dvc` extra)")
def test_dvc_repro_builds_the_lookup_of_captions_without_a_split(tmp_path: Path) -> None:
    lines = [f"{n // 2},{n} dogs run on a {word} field\n" for n, word in enumerate(["red", "green", "wide", "wet"] * 5)]
    (tmp_path / "my.csv").write_text("image_id,text\n" + "".join(lines), encoding="utf-8")
    init(tmp_path, "mine", Path("my.csv"), dvc=True)
    # DVC runs the command that is installed beside this Python.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def dvc(*arguments: str) -> str:
        command = [sys.executable, "-m", "dvc", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    dvc("init", "--no-scm", "-q")
    dvc("repro", "-q")
    lookup = open_lookup(tmp_path / "labels/mine/exports/all/lookup/cider")
    assert len(lookup) == 20
    assert (tmp_path / "labels/mine/page/all/report.html").exists()
    assert "Data and pipelines are up to date" in dvc("repro")
