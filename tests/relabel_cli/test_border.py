"""Contract: every exception that ends a command is one line on stderr and a documented exit code. The line of a bug
names a file with the traceback; no other error shows one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relabel.core.errors import CheckError, MissingError, PartialError, UsageError
from relabel_cli import border
from relabel_cli.border import report

DOCTOR = """
import relabel.stages.doctor
from relabel.core.errors import *
def examine(*_):
    raise {0}
relabel.stages.doctor.run_checks = examine
from relabel_cli.main import main
main()
"""
"""`relabel doctor` with an examination that raises."""


def system(number: int, filename: str | None = "labels/x") -> OSError:
    return OSError(number, os.strerror(number), filename)


def raised(error: Exception) -> Exception:
    """Raise an error, which gives it a traceback, and return it."""
    try:
        raise error
    except Exception as caught:
        return caught


class OutOfMemoryError(RuntimeError):
    """Error with the name of torch's."""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("wrong"), 2, "wrong"),
        (MissingError("gone", where="a.txt", todo="Make it."), 3, "a.txt: gone. Make it."),
        (CheckError("damaged\nin line 2"), 4, "damaged in line 2"),
        (PartialError("stopped"), 5, "stopped"),
        (system(errno.ENOSPC), 5, "labels/x: could not write: No space left on device. Free some space"),
        (system(errno.EDQUOT, None), 5, "Free some space"),
        (system(errno.EMFILE, None), 5, "ulimit -n"),
        (system(errno.EACCES), 4, "labels/x: Permission denied. Change the permissions"),
        (system(errno.EROFS), 4, "labels/x: Read-only file system. Change the permissions"),
        (system(errno.ENOENT), 3, "labels/x: No such file or directory"),
        (system(errno.ENAMETOOLONG), 2, "labels/x: File name too long"),
        (system(errno.EISDIR), 2, "labels/x: Is a directory"),
        (MemoryError(), 5, "out of memory. Run it again with a lower --memory or fewer --threads"),
        (OutOfMemoryError("CUDA out of memory. Tried"), 5, "out of memory. Run it again"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 5, "out of memory. Run it again"),
        (ModuleNotFoundError("No module named 'numba'", name="numba"), 3, "pip install 'relabel-itr[pipeline]'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_of_a_user_or_a_machine_is_one_line(
    error: Exception, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err
    assert "bug" not in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [
        ValueError("first\nsecond ü"),
        KeyError("name"),
        EOFError(),
        RecursionError("too deep"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        OSError("no number"),
        ModuleNotFoundError("No module named 'relabel.gone'", name="relabel.gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_bug_is_one_line_that_names_the_traceback(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert report(raised(error)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    (file,) = tmp_path.glob("relabel-bug-*.txt")
    assert line.startswith(f"error: internal error (a bug in relabel): {type(error).__name__}")
    assert f"the traceback is in {file}; please report it with the output of `relabel doctor`" in line
    text = file.read_text(encoding="utf-8")
    assert text.startswith("relabel 0.")
    assert "Traceback (most recent call last)" in text
    assert "test_border.py" in text
    assert str(error).strip("'") in text


def test_a_traceback_that_cannot_be_written_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(**_: Any) -> None:
        raise system(errno.ENOSPC)

    monkeypatch.setattr("tempfile.mkstemp", full)
    assert report(ValueError("wrong")) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ValueError: wrong"
    assert "the traceback is above" in lines[-1]


def test_verbose_shows_the_traceback_and_keeps_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(raised(CheckError("damaged")), verbose=True) == 4
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "error: damaged"


def test_a_verb_that_cannot_be_imported_is_a_bug_of_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken() -> int:
        raise AttributeError("module has no attribute 'app'")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert border.run(broken) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("ValueError('wrong')", 1),
        ("CheckError('wrong')", 4),
        ("PartialError('wrong')", 5),
        ("KeyboardInterrupt", 130),
    ],
)
def test_a_process_ends_with_the_code_and_one_line(error: str, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DOCTOR.format(error), "doctor"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == code, run.stderr
    assert run.stdout == ""
    assert len(run.stderr.splitlines()) == 1
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["nonsense"], ""),
        (["export"], "export "),
        (["encode", "--nonsense"], "encode "),
        (["export", "plan"], "export plan "),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_help(arguments: list[str], command: str, tmp_path: Path) -> None:
    code = "import sys; sys.argv[0] = 'relabel'\nfrom relabel_cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(f"See `relabel {command}--help`.")
