"""A stand-in for Java that fails on request."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Install a `java` through $RELABEL_JAVA that answers `-version` and otherwise runs the given Python code."""

    def install(code: str) -> Path:
        folder = tmp_path / "fake-java"
        folder.mkdir(exist_ok=True)
        version = "if '-version' in sys.argv: sys.exit(print('openjdk version \"17.0.0\"', file=sys.stderr))"
        main = folder / "main.py"
        main.write_text(f"import os, sys, time\n{version}\n{textwrap.dedent(code)}", encoding="utf-8")
        java = folder / "java"
        java.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S -E {shlex.quote(str(main))} "$@"\n')
        java.chmod(0o755)
        monkeypatch.setenv("RELABEL_JAVA", str(java))
        return java

    return install
