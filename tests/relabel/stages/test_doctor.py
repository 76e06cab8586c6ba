"""Contract: doctor changes nothing, finds what is there, and gives the cost of each gap and a way to close it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.core.runtime import Runtime
from relabel.stages import doctor


def test_every_finding_is_fine_or_says_the_fix(tmp_path: Path) -> None:
    findings = doctor.run_checks(Runtime(data=tmp_path / "data"), tmp_path / "labels")
    assert [f.what for f in findings][:3] == ["python", "java", "all-MiniLM-L6-v2"]
    for finding in findings:
        assert finding.found
        assert finding.fine or (finding.cost and finding.fix)
    assert list(tmp_path.iterdir()) == []


def test_gaps_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "NEEDED_DISK", 1 << 62)
    gaps = {f.what: f for f in doctor.run_checks(Runtime(data=tmp_path), tmp_path) if not f.fine}
    assert {"all-MiniLM-L6-v2", "gensim", "disk"} <= set(gaps)
    assert "relabel-itr[offline]" in gaps["all-MiniLM-L6-v2"].fix


def test_a_missing_or_cut_corenlp_is_a_gap_with_the_command_that_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jpype")
    monkeypatch.setenv("RELABEL_CORENLP", str(tmp_path))
    for cut in (None, b"half"):
        if cut:
            (tmp_path / "stanford-corenlp-3.6.0.jar").write_bytes(cut)
        found = {f.what: f for f in doctor.run_checks(Runtime(data=tmp_path), tmp_path)}["spice"]
        assert not found.fine
        assert "stanford-corenlp-3.6.0.jar" in found.found
        assert "relabel fetch corenlp" in found.fix
        assert "\n" not in found.found + found.fix
