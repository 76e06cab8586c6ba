"""Contract: a result that cannot be written to stdout is an error with an exit code, never a traceback. A closed or
full stderr changes no exit code. Characters that an encoding lacks are escaped, in JSON by JSON's escapes.
"""

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
FULL = "error: could not write to standard output: No space left on device\n"
CLOSED = "error: could not write to standard output: Bad file descriptor\n"


def shell(command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("arguments", ["--help", "encode --help", "fetch --list"])
def test_a_full_disk_behind_stdout_is_one_line(arguments: str, tmp_path: Path) -> None:
    run = shell(f"{RELABEL} {arguments} > /dev/full", tmp_path)
    assert (run.returncode, run.stderr) == (5, FULL)


@pytest.mark.parametrize(
    ("arguments", "redirection", "code", "said"),
    [
        ("fetch --list", ">&-", 5, CLOSED),
        ("--help", ">&-", 5, CLOSED),
        ("fetch --list", "<&- >&- 2>&-", 5, ""),
        ("fetch --list", "> /dev/full 2>&1", 5, ""),
        ("nonsense", "2>&-", 2, ""),
        ("encode", "2> /dev/full", 3, ""),
    ],
)
def test_a_lost_result_changes_the_exit_code(
    arguments: str, redirection: str, code: int, said: str, tmp_path: Path
) -> None:
    run = shell(f"{RELABEL} {arguments} {redirection}", tmp_path)
    assert (run.returncode, run.stderr) == (code, said)


@pytest.mark.parametrize("redirection", ["2> /dev/full", "<&- 2>&-"])
def test_lost_messages_change_nothing(redirection: str, tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_text('{"caption_id": "1", "image_id": "1", "split": "test", "text": "a dog"}\n')
    ingest = "ingest --dataset mine --set ingest.format=jsonl --path captions.jsonl --set ingest.tokenizer=none"
    run = shell(f"{RELABEL} {ingest} {redirection}", tmp_path)
    assert run.returncode == 0, run.stderr
    assert "corpus mine: built" in run.stdout


def test_a_closed_pipe_ends_the_command_as_sigpipe_does(tmp_path: Path) -> None:
    long = f"{RELABEL} fetch --list --data {'x' * 200} --json"
    run = shell(f"( {long}; echo $? > code ) | true", tmp_path, RELABEL_MIRROR="")
    assert (tmp_path / "code").read_text() == "141\n"
    assert run.stderr == ""


def test_the_descriptor_of_a_closed_stream_is_not_reused(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom relabel_cli.streams import open_streams\nopen_streams()\n"
        "with open('data', 'w') as file:\n    print('noise', file=sys.stderr)\n    file.write(str(file.fileno()))"
    )
    shell(f'{sys.executable} -c "{code}" <&- >&- 2>&-', tmp_path)
    assert int((tmp_path / "data").read_text()) > 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_has_the_same_value_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"id": "图", "text": "café \udcff"}
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
