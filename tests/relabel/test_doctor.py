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


def test_a_missing_or_cut_corenlp_is_a_gap_with_the_command_that_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jpype")
    monkeypatch.setenv("RELABEL_CORENLP", str(tmp_path))
    for cut in (None, b"half"):
        if cut:
            (tmp_path / "stanford-corenlp-3.6.0.jar").write_bytes(cut)
        found = {f.what: f for f in doctor.examine(Runtime(data=tmp_path), tmp_path)}["spice"]
        assert not found.fine
        assert "stanford-corenlp-3.6.0.jar" in found.found
        assert "relabel fetch corenlp" in found.cure
        assert "\n" not in found.found + found.cure


def test_a_slow_openblas_is_noticed_by_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"Haswell": 110.0, "SkylakeX": 230.0, None: 235.0}
    monkeypatch.setattr(doctor, "sgemm_rate", lambda environment: rates[environment.get("OPENBLAS_CORETYPE")])
    for told, fine in {"Haswell": False, "SkylakeX": True, None: True}.items():
        monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
        if told is not None:
            monkeypatch.setenv("OPENBLAS_CORETYPE", told)
        found = {f.what: f for f in doctor.examine(Runtime(data=tmp_path), tmp_path)}["numpy's products"]
        assert found.fine == fine
        assert fine or ("47%" in found.cost and found.cure == "unset OPENBLAS_CORETYPE")


def test_the_rate_of_products_is_a_measurement() -> None:
    import os

    assert doctor.sgemm_rate(dict(os.environ)) > 0.1
