"""Contract: doctor changes nothing, finds what is there, and says of each gap what it costs and how to close it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel import doctor
from relabel.runtime import Runtime


def test_every_finding_is_fine_or_says_the_cure(tmp_path: Path) -> None:
    findings = doctor.examine(Runtime(data=tmp_path / "data"), tmp_path / "labels")
    assert [f.what for f in findings][:3] == ["python", "java", "all-MiniLM-L6-v2"]
    for finding in findings:
        assert finding.found
        assert finding.fine or (finding.cost and finding.cure)
    assert list(tmp_path.iterdir()) == []


def test_gaps_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "NEEDED_DISK", 1 << 62)
    gaps = {f.what: f for f in doctor.examine(Runtime(data=tmp_path), tmp_path) if not f.fine}
    assert {"all-MiniLM-L6-v2", "gensim", "disk"} <= set(gaps)
    assert "relabel-itr[offline]" in gaps["all-MiniLM-L6-v2"].cure
