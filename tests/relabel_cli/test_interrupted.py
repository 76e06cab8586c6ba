"""Contract: Ctrl-C at any point after the entry point has started ends a command with exit code 130 and one line,
unless the command has already ended. Rerunning it ends with the bytes of an uninterrupted run, and no process
remains.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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


CIDER = (
    ("ingest",),
    ("encode", "--label", "cider", "--split", "all"),
    ("export", "lookup", "--label", "cider", "--split", "all"),
)
OTHERS = (
    ("ingest",),
    ("encode", "--label", "cider", "--split", "all", "--workers", "2"),
    ("neighbours", "--label", "cider"),
    ("tune", "cbow"),
    ("encode", "--label", "cbow", "--split", "all"),
    ("encode", "--label", "sbert", "--split", "all"),
    ("export", "batches", "--label", "cider", "--split", "all", "--batch-size", "8"),
)
PARAMS = """
tune: {cbow: {splits: [test], tokenizer: lower_split, width: 8, min_count: 1, epochs: 1}}
ingest: {dataset: mine, format: jsonl, path: captions.jsonl, tokenizer: none}
encode: {rows_per_shard: 60}
neighbours: {k: 5, split: all, candidates: all}
sources:
  cider: {source: cider, tokenizer: lower_split}
  cbow: {source: cbow, tokenizer: lower_split, vectors: word2vec}
  sbert: {source: sbert}
"""


@dataclass
class Folder:
    """A project in which commands are interrupted, and one in which they are not."""

    path: Path
    chance: random.Random
    seconds: dict[tuple[str, ...], float] = field(default_factory=dict)
    interrupted: int = 0

    def start(self, command: Sequence[str], cwd: Path) -> subprocess.Popen[str]:
        """Start a command; return once Ctrl-C is handled."""
        read, write = os.pipe()
        env = os.environ | {
            "NUMBA_CACHE_DIR": str(cwd / "numba"),
            "READY": str(write),
        }  # an empty cache: kernels are compiled
        arguments, pipe = [sys.executable, "-c", START, *one_thread(command), "--quiet"], subprocess.PIPE
        process = subprocess.Popen(
            arguments, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True, process_group=0, pass_fds=[write]
        )
        os.close(write)
        os.read(read, 1)
        os.close(read)
        return process

    def finish(self, command: tuple[str, ...], cwd: Path) -> None:
        started = time.monotonic()
        process = self.start(command, cwd)
        _, stderr = process.communicate(timeout=240)
        assert process.returncode == 0, stderr
        self.seconds.setdefault(command, time.monotonic() - started)

    def interrupt(self, command: tuple[str, ...], cwd: Path) -> None:
        """Send SIGINT at a random time, to the command alone or, as a terminal does, to its process group."""
        process, started = self.start(command, cwd), time.monotonic()
        wait = self.chance.uniform(0, self.seconds[command])
        send = self.chance.choice([os.kill, os.killpg])
        try:
            _, stderr = process.communicate(timeout=wait)
        except subprocess.TimeoutExpired:
            send(process.pid, signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        assert (process.returncode, stderr) in ((0, ""), (130, f"{LINE}\n"))
        self.interrupted += process.returncode == 130
        if process.returncode == 0:
            # The command has become faster than measured: shorten later waits.
            self.seconds[command] = min(self.seconds[command], time.monotonic() - started)
        deadline = time.monotonic() + 10
        while left := list(processes_of_group(process.pid)):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


def processes_of_group(group: int) -> Iterator[int]:
    import psutil

    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid
        except (psutil.Error, OSError):
            continue


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file except locks, without the facts of manifests that differ between any two runs."""
    files = {}
    for path in sorted((folder / "labels").rglob("*")):
        if path.is_file() and path.suffix != ".lock":
            body = path.read_bytes()
            if path.name == "manifest.json":
                facts = {k: v for k, v in json.loads(body).items() if k not in ("provenance", "digest")}
                body = json.dumps(facts).encode()
            files[path.relative_to(folder).as_posix()] = body
    return files


def drill(folder: Path, commands: Sequence[tuple[str, ...]], times: int, seed: int) -> int:
    """Interrupt each command `times` times, then let it end; return the number of interrupts that met a running one."""
    complete, broken = folder / "whole", folder / "broken"
    project = Folder(folder, random.Random(seed))
    for place in (complete, broken):
        place.mkdir()
        (place / "params.yaml").write_text(PARAMS)
        with (place / "captions.jsonl").open("w") as file:
            for row in range(200):
                text = f"a {('dog', 'cat', 'bird')[row % 3]} on a {('chair', 'hill')[row % 2]} number {row // 5}"
                line = {"caption_id": str(row), "image_id": str(row // 5), "split": "test", "text": text}
                file.write(json.dumps(line) + "\n")
    for command in commands:
        project.finish(command, complete)
        for _ in range(times):
            project.interrupt(command, broken)
        project.finish(command, broken)
    assert contents(broken) == contents(complete)
    return project.interrupted


@pytest.mark.slow
def test_an_interrupted_command_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    assert drill(tmp_path, CIDER, times=2, seed=0) >= 3
    # numba ignores a KeyboardInterrupt in its callbacks: interrupt it while it compiles.
    process = Folder(tmp_path, random.Random()).start(("neighbours", "--label", "cider"), tmp_path / "whole")
    while process.poll() is None and not list((tmp_path / "whole" / "numba").rglob("*.nbi")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, f"{LINE}\n")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_other_verbs_and_workers_are_interrupted(tmp_path: Path) -> None:
    assert drill(tmp_path, OTHERS, times=5, seed=1) >= 20
