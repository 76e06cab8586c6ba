"""Contract: doctor changes nothing, reports the state of the machine, and gives the cost and the fix of each
gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.core.runtime import Runtime
from relabel.stages import doctor


def test_every_check_passes_or_has_a_cost_and_a_fix(tmp_path: Path) -> None:
    checks = doctor.run_checks(Runtime(data=tmp_path / "data"), tmp_path / "labels")
    for check in checks:
        assert check.state
        assert bool(check.cost) == bool(check.fix)
    assert list(tmp_path.iterdir()) == []
    lines = doctor.report(checks).splitlines()
    for name in ("python", "java", "all-MiniLM-L6-v2"):
        assert sum(f"  {name} " in line for line in lines) == 1


def test_gaps_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "NEEDED_DISK", 1 << 62)
    checks = doctor.run_checks(Runtime(data=tmp_path), tmp_path)
    gaps = {check.name: check for check in checks if check.cost}
    assert {"all-MiniLM-L6-v2", "gensim", "disk"} <= set(gaps)
    assert "relabel-itr[offline]" in gaps["all-MiniLM-L6-v2"].fix
    assert f"gensim: {gaps['gensim'].cost}\n  {gaps['gensim'].fix}" in doctor.report(checks)


@pytest.mark.parametrize(("missing", "named"), [([], ""), (["torch"], ""), (["numba", "torch"], "numba")])
def test_missing_parts_of_the_pipeline_are_named(
    missing: list[str], named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in missing else object())
    monkeypatch.setattr(doctor, "missing_distributions", lambda extra: missing)
    checks = {check.name: check for check in doctor.run_checks(Runtime(data=tmp_path), tmp_path)}
    assert checks["pipeline"].state == (f"not installed: {named}" if named else "installed")
    assert bool(checks["pipeline"].fix) == bool(named)
    assert bool(checks["torch"].cost) == ("torch" in missing)


def test_a_missing_or_truncated_corenlp_names_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELABEL_CORENLP", str(tmp_path))
    for cut in (None, b"half"):
        if cut:
            (tmp_path / "stanford-corenlp-3.6.0.jar").write_bytes(cut)
        check = next(one for one in doctor.run_checks(Runtime(data=tmp_path), tmp_path) if one.name == "corenlp")
        assert check.cost
        assert "stanford-corenlp-3.6.0.jar" in check.state
        assert "relabel fetch corenlp" in check.fix
        assert "\n" not in check.state + check.fix
