"""Contract: Ctrl-C ends a command with exit code 130 and one line as soon as its entry point has started: while it
imports, waits for worker processes, or compiles. No process remains. The drills interrupt every stage at any point.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.relabel_cli.runner import one_thread

from relabel_cli.main import LINE

START = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from relabel_cli.main import exit_on_interrupt, main
exit_on_interrupt()
os.close(int(os.environ["READY"]))
main()
"""
PARAMS = """
ingest: {dataset: mine, format: jsonl, path: captions.jsonl}
neighbours: {k: 5, candidates: all}
sources: {cider: {source: cider, tokenizer: lower_split}}
"""
ENCODE = ("encode", "--label", "cider", "--split", "all")
Found = Callable[[psutil.Process, Path], object]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "command", "reached"),
    [
        ((), ("ingest",), lambda process, folder: True),
        ((("ingest",),), (*ENCODE, "--workers", "2"), lambda process, folder: len(process.children()) >= 2),
        # numba ignores a KeyboardInterrupt in its callbacks.
        ((("ingest",), ENCODE), ("neighbours", "--label", "cider"), lambda process, folder: [*folder.rglob("*.nbi")]),
    ],
    ids=["importing", "workers", "compiling"],
)
def test_an_interrupted_command_ends_in_one_line(
    before: tuple[tuple[str, ...], ...], command: tuple[str, ...], reached: Found, tmp_path: Path
) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    names = [{"caption_id": str(row), "image_id": str(row // 5), "split": "test"} for row in range(200)]
    lines = [json.dumps(name | {"text": f"a dog on hill {row // 5}"}) for row, name in enumerate(names)]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    for one in before:
        assert start(one, tmp_path).wait(timeout=240) == 0
    process = start(command, tmp_path)
    while not reached(psutil.Process(process.pid), tmp_path):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, f"{LINE}\n")
    deadline = time.monotonic() + 10
    while left := [one for one in psutil.pids() if group_of(one) == process.pid]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def start(command: tuple[str, ...], folder: Path) -> subprocess.Popen[str]:
    """Start a command in a process group of its own; return once Ctrl-C is handled."""
    read, write = os.pipe()
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "numba"), "READY": str(write)}  # kernels are compiled
    arguments, pipe = [sys.executable, "-c", START, *one_thread(command), "--quiet"], subprocess.PIPE
    process = subprocess.Popen(
        arguments, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True, process_group=0, pass_fds=[write]
    )
    os.close(write)
    os.read(read, 1)
    os.close(read)
    return process


def group_of(pid: int) -> int | None:
    try:
        ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return None if ended else os.getpgid(pid)
    except (psutil.Error, OSError):
        return None
