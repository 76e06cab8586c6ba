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


@pytest.mark.parametrize(
    ("missing", "state", "fix"),
    [
        (["torch"], "installed: labels can be built", ""),
        (
            ["sentence-transformers", "torch"],
            "not installed: sentence-transformers",
            "pip install sentence-transformers",
        ),
        (["numba", "torch"], "not installed: numba", "relabel-itr[pipeline]"),
    ],
)
def test_missing_parts_of_the_pipeline_are_named(
    missing: list[str], state: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in missing else object())
    monkeypatch.setattr(doctor, "missing_distributions", lambda extra: missing)
    pipeline, gpu = doctor.check_pipeline(), doctor.check_gpu()
    assert pipeline.state == state
    assert fix in pipeline.fix
    assert "labels of sbert and bert_sts cannot be built" in gpu.cost
    assert "pip install torch" in gpu.fix


def test_a_missing_or_truncated_corenlp_names_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jpype")
    monkeypatch.setenv("RELABEL_CORENLP", str(tmp_path))
    for cut in (None, b"half"):
        if cut:
            (tmp_path / "stanford-corenlp-3.6.0.jar").write_bytes(cut)
        check = doctor.check_spice(Runtime(data=tmp_path))
        assert check.cost
        assert "stanford-corenlp-3.6.0.jar" in check.state
        assert "relabel fetch corenlp" in check.fix
        assert "\n" not in check.state + check.fix
