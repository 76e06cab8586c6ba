"""Contract: a closed pipe ends a command as SIGPIPE does. Characters that an encoding lacks are escaped, in JSON by
JSON's escapes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relabel_cli.streams import write_result

RELABEL = f'{sys.executable} -c "from relabel_cli.main import main; main()"'


def shell(command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("command", ["fetch --list --json", "--help", "encode --help"])
def test_a_closed_pipe_ends_the_command_as_sigpipe_does(command: str, tmp_path: Path) -> None:
    run = shell(f"( {RELABEL} {command}; echo $? > code ) | true", tmp_path, RELABEL_MIRROR="")
    assert (tmp_path / "code").read_text() == "141\n"
    assert run.stderr == ""


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_json_has_the_same_value_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"id": "图", "text": "café"}
    stream = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(stream, encoding=encoding, errors="backslashreplace"))
    write_result(value, "", as_json=True)
    assert json.loads(stream.getvalue().decode(encoding)) == value


SHOW = """
import relabel.stages.doctor
from relabel.stages.doctor import CheckResult
relabel.stages.doctor.run_checks = lambda *_: {"machine": [CheckResult("café", "图")]}
from relabel_cli.main import main
main()
"""


@pytest.mark.parametrize(("encoding", "written"), [("ascii", "ok  caf\\xe9  \\u56fe"), ("utf-8", "ok  café  图")])
def test_text_that_an_encoding_lacks_is_escaped(encoding: str, written: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SHOW, "doctor"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"machine\n  {written}\n"


def test_tables_use_characters_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.table import Table

    from relabel_cli.output import plain

    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    table = Table("a", "b")
    table.add_row("1", "2")
    assert plain(table).isascii()
    assert "\\u" not in plain(table)
