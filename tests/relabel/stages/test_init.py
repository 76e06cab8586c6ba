"""Contract: init writes the repository's params.yaml for a dataset, and on request stages that DVC resolves outside the
checkout, which have the commands and outputs of the checkout's. It replaces nothing."""

from __future__ import annotations

import os
import re
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


def test_without_a_path_the_file_shows_where_to_set_one(tmp_path: Path) -> None:
    init(tmp_path, "mine")
    assert load_config(tmp_path / "params.yaml").ingest.path is None
    assert "  # path: captions.csv" in (tmp_path / "params.yaml").read_text(encoding="utf-8")


def test_nothing_is_replaced_or_partly_written(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"dvc.yaml exists"):
        init(tmp_path, dvc=True, examples=True)
    assert [file.name for file in tmp_path.iterdir()] == ["dvc.yaml"]
    with pytest.raises(UsageError, match="dataset"):
        init(tmp_path, "../mine")


def test_without_the_pipeline_extra_no_file_is_written_for_dvc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "relabel.stages.run", None)
    with pytest.raises(ImportError):
        init(tmp_path, "mine", dvc=True)
    assert not list(tmp_path.iterdir())


def test_examples_are_copied(tmp_path: Path) -> None:
    init(tmp_path, examples=True)
    names = {file.name for file in (ROOT / "examples").iterdir() if file.is_file()}
    assert names <= {file.name for file in (tmp_path / "examples").iterdir()}


def test_the_stages_are_those_of_the_checkout(tmp_path: Path) -> None:
    """Check that commands agree but for bert_sts and spice and what these need, and files but for versions.yaml."""
    init(tmp_path, dvc=True)
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8").replace(",bert_sts,spice", "")
    checkout, written = yaml.safe_load(text), stages(tmp_path)
    assert list(written) == list(checkout["stages"])
    for name, stage in written.items():
        theirs = checkout["stages"][name]
        commands = theirs["cmd"] if isinstance(theirs["cmd"], list) else [theirs["cmd"]]
        for variable in checkout["vars"]:
            for key, value in variable.items():
                commands = [command.replace(f"${{{key}}}", value) for command in commands]
        if name == "correlate":
            commands = [commands[0].replace("--cxc --eccv", "--on cxc,eccv")]
        if name in ("correlate", "report"):
            # Without names, these take the labels of the parameter file.
            commands = [re.sub(" --label .*", "", command) for command in commands]
        if name == "fetch":
            commands = [commands[0], "relabel fetch coco-captions"]
        assert stage["cmd"] == [command for command in commands if "bert_sts" not in command]
        for kind, allowed in (("outs", theirs["outs"]), ("deps", theirs.get("deps", []))):
            folders = [Path(next(iter(one))) if isinstance(one, dict) else Path(one) for one in allowed]
            for one in stage.get(kind, []):
                path = Path(next(iter(one))) if isinstance(one, dict) else Path(one)
                assert any(path.is_relative_to(folder) for folder in folders), path


@pytest.mark.skipif(not find_spec("dvc"), reason="dvc is not installed (the `dvc` extra)")
def test_dvc_resolves_the_stages_outside_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text("image_id,text\n1,a dog\n", encoding="utf-8")
    init(tmp_path, "mine", Path("my.csv"), dvc=True)

    def dvc(*arguments: str) -> str:
        command = [sys.executable, "-m", "dvc", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    dvc("init", "--no-scm", "-q")
    assert [line.split()[0] for line in dvc("stage", "list").splitlines()] == list(stages(tmp_path))
    assert "> relabel ingest" in dvc("repro", "--dry", "ingest")
    # The splits of the captions are not known before they are ingested.
    assert stages(tmp_path)["encode"]["cmd"] == ["relabel encode --label sbert,cider --split all"]


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
