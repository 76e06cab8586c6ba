"""Contract: init writes the repository's params.yaml for a dataset, and on request those stages of its dvc.yaml that
the dataset has, which DVC resolves outside the checkout. It replaces nothing.

Contract: doctor changes nothing, reports the state of the machine, and gives the cost and the fix of each
gap.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from relabel.config import Config, load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.stages import doctor
from relabel.stages.init import init
from relabel_train.lookup import open_lookup

ROOT = Path(__file__).parents[3]


def test_the_parameter_file_is_that_of_the_repository(tmp_path: Path) -> None:
    assert init(tmp_path) == [tmp_path / "params.yaml"]
    assert (tmp_path / "params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()


@pytest.mark.parametrize("path", ["my captions.csv", "yes", "a: b#c.csv"])
def test_captions_of_the_user_are_in_the_file(path: str, tmp_path: Path) -> None:
    init(tmp_path, "mine", Path(path))
    config = load_config(tmp_path / "params.yaml")
    assert (config.ingest.dataset, config.ingest.path) == ("mine", Path(path))
    assert config.model_copy(update={"ingest": Config().ingest}) == Config()
    written = yaml.safe_load((tmp_path / "params.yaml").read_text(encoding="utf-8"))
    assert set(written) == {"ingest", "encode", "neighbours", "export", "sources"}  # people judged other captions


def test_nothing_is_replaced_or_partly_written(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"dvc.yaml exists"):
        init(tmp_path, dvc=True, examples=True)
    assert [file.name for file in tmp_path.iterdir()] == ["dvc.yaml"]
    with pytest.raises(UsageError, match="dataset"):
        init(tmp_path, "../mine")


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


def test_every_check_passes_or_has_a_cost_and_a_fix(tmp_path: Path) -> None:
    checks = doctor.run_checks(Runtime(data=tmp_path / "data"))
    for check in checks:
        assert check.state
        assert bool(check.cost) == bool(check.fix)
    assert list(tmp_path.iterdir()) == []
    lines = doctor.report(checks).splitlines()
    for name in ("python", "java", "offline"):
        assert sum(f"  {name} " in line for line in lines) == 1


def test_gaps_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing_distributions", lambda extra: ["gensim"] if extra == "tune" else [])
    checks = {check.name: check for check in doctor.run_checks(Runtime(data=tmp_path))}
    assert (checks["offline"].state, checks["offline"].cost) == ("installed", "")
    assert "gensim" in checks["tune"].state
    assert "relabel-itr[tune]" in checks["tune"].fix
    assert f"tune: {checks['tune'].cost}\n  {checks['tune'].fix}" in doctor.report([*checks.values()])
