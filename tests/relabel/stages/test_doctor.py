"""Contract: doctor changes nothing, reports the state of the machine, and gives the cost and the fix of each
gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.core.runtime import Runtime
from relabel.stages import doctor


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


@pytest.mark.parametrize(
    ("installed", "named"), [((), "faiss-cpu"), (("faiss-gpu",), ""), (("faiss-cpu", "faiss-gpu"), "faiss-gpu")]
)
def test_faiss_comes_from_one_of_two_distributions(
    installed: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "is_installed", lambda name: name in installed)
    monkeypatch.setattr(
        doctor, "missing_distributions", lambda extra: [] if f"faiss-{extra}" in installed else [f"faiss-{extra}"]
    )
    check = next(one for one in doctor.run_checks(Runtime(data=tmp_path)) if one.name == "faiss")
    assert bool(check.cost) == bool(named)
    assert named in check.state


def test_a_missing_or_truncated_corenlp_names_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    (tmp_path / "corenlp").mkdir()
    for cut in (None, b"half"):
        if cut:
            (tmp_path / "corenlp/stanford-corenlp-3.6.0.jar").write_bytes(cut)
        check = next(one for one in doctor.run_checks(Runtime(data=tmp_path)) if one.name == "corenlp")
        assert check.cost
        assert "stanford-corenlp-3.6.0.jar" in check.state
        assert "relabel fetch corenlp" in check.fix
        assert "\n" not in check.state + check.fix


def test_missing_distributions_are_those_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = [
        "numpy>=1.26",
        "no-such-distribution; extra == 'pipeline'",
        'torch>=2.4; extra == "pipeline"',
        'no-other; extra == "pipe"',
    ]
    monkeypatch.setattr(doctor, "requires", lambda name: requirements)
    assert doctor.missing_distributions("pipeline") == ["no-such-distribution"]
