"""Contract: init writes the repository's params.yaml for a dataset and replaces nothing. Its dvc.yaml is held by
tests/matrix.

Contract: doctor changes nothing, reports the state of the machine, and gives the cost and the fix of each
gap.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from relabel.config import Config, load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.stages import doctor
from relabel.stages.init import init

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
    assert set(written) == {"ingest", "neighbours", "export", "sources"}  # people judged other captions


def test_nothing_is_replaced_or_partly_written(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"dvc.yaml already exists"):
        init(tmp_path, dvc=True, examples=True)
    assert [file.name for file in tmp_path.iterdir()] == ["dvc.yaml"]
    with pytest.raises(UsageError, match="dataset"):
        init(tmp_path, "../mine")


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
