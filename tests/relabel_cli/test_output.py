"""Contract: lists that verbs print fit the terminal, and a row is one line in a pipe. The plan of a run marks
estimates.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest

from relabel.stages.dry_run import Step
from relabel_cli.output import fit, plan_text

ROWS = [("coco-captions", "captions.json", "65 MB", "to download", "https://example.org/a/path/of/some/length.zip")]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_rows_fit_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = fit([*ROWS, ("", "b", "1 KB", "present", "b")], right=[2])
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == [*" ".join(ROWS[0]).split(), "b", "1", "KB", "present", "b"]


def test_long_text_is_wrapped_beside_narrow_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = fit([("train", "5 captions"), ("first five", "used by reference sets, pairs of CxC and the metrics")])
    assert lines == [
        "train       5 captions",
        "first five  used by reference sets, pairs of CxC and the",
        "            metrics",
    ]


def test_a_row_is_one_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert len(fit(ROWS * 3)) == 3


def in_terminal(columns: int, *arguments: str, cwd: Path) -> list[str]:
    """Run a verb with a pseudo terminal as its standard output and error; return the visible lines."""
    terminal, stream = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "relabel", *arguments]
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=stream, stderr=stream)
    os.close(stream)
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        output += chunk
        if not chunk:
            break
    os.close(terminal)
    assert process.wait(timeout=60) == 0, output.decode()[-2000:]
    # Colours and cursor movements take no column; a bar overwrites itself.
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.decode())
    return [part for line in text.splitlines() for part in line.split("\r")]


@pytest.mark.parametrize("arguments", [("doctor",), ("fetch", "--list"), ("run", "--dry-run")])
@pytest.mark.parametrize("columns", [80, 100])
def test_lists_fit_a_pseudo_terminal(columns: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    lines = in_terminal(columns, *arguments, cwd=tmp_path)
    # A path or address may be longer than the terminal.
    assert [line for line in lines if len(line) > columns and " " in line.strip()] == []


def test_the_table_marks_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ingest = Step("ingest", "coco", "corpus", rows=616_767, bytes=32_000_000, seconds=10.5)
    encode = Step("encode", "sbert", "vectors", "partly", rows=616_767, bytes=1_900_000_000, seconds=608.0)
    text = plan_text([ingest, encode])
    assert "~1.9 GB ~10 min 8 s" in " ".join(text.split())
    assert "~10 min 18 s" in text.split("still")[1]
    assert "partly" in text
    assert "Empty cells" not in text
    done = [replace(step, state="done", seconds=None) for step in (ingest, encode)]
    assert "~" not in plan_text(done)
    assert "Empty cells" in plan_text([Step("judge", "sbert", "scores")])
