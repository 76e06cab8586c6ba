"""Contract: the files of an artefact have the same bytes for every executor: this process, local processes, Dask's
workers and shares of several processes. Each process prepares the job once.

- A killed worker ends a run of local processes with PartialError, and the next run goes on; Dask gives its task to
  another worker.
- A share ends with PartialError, which names a file, where the step before is incomplete.
- Errors of tasks reach the user unchanged. A worker that would make another artefact is refused.
- No worker outlives the process that started it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.relabel.store.demo_stage import FIRST, PARTS, demo

from relabel.config import load_config
from relabel.core.errors import CheckError, PartialError
from relabel.core.runtime import Progress, Runtime
from relabel.stages import Job, Session

pytestmark = pytest.mark.timeout(120)


class Display(Progress):
    """Progress that cannot be sent to a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "input").write_bytes(b"content")
    return tmp_path / "notes"


def demo_job(notes: Path, labels: str = "labels", how: str = "plain", **runtime: Any) -> Job:
    session = Session(load_config(None), Runtime(threads=2, progress=Display(), **runtime), notes.parent / labels)
    return demo(session, notes, how)


def check_files(job: Job) -> None:
    """Compare all files except the manifest, which holds times."""
    files = {p.name: p.read_bytes() for p in job.out.iterdir() if p.name != "manifest.json"}
    assert files == {name: b"content" * i for i, name in enumerate(PARTS)}


@contextmanager
def killed_once_there(file: Path) -> Iterator[None]:
    """Kill the process whose id a file holds, as soon as the file exists, and let others go on."""

    def kill() -> None:
        while not file.exists():
            time.sleep(0.02)
        os.kill(int(file.read_text()), signal.SIGKILL)
        (file.parent / "go").touch()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    yield
    thread.join(10)


@contextmanager
def cluster(workers: int = 1, processes: bool = False, failures: int = 3) -> Iterator[str]:
    """Start a scheduler whose workers are threads of this process, or processes; yield its address."""
    distributed = pytest.importorskip("distributed")
    options = {"processes": processes, "protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
    options |= {"n_workers": workers, "threads_per_worker": 1 if processes else 2, "silence_logs": logging.CRITICAL}
    dask, limit = pytest.importorskip("dask"), {"distributed.scheduler.allowed-failures": failures}
    with dask.config.set(limit), distributed.LocalCluster(**options) as started:
        yield started.scheduler_address


def workers() -> set[psutil.Process]:
    """Return the workers of this process; those of tests before may be among them."""
    return {p for p in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(p.cmdline())}


def test_local_processes(notes: Path) -> None:
    before = workers()
    job = demo_job(notes, workers=2)
    job.run()
    check_files(job)
    models = Counter((notes / "models").read_text().split())
    assert models.pop(str(os.getpid())) == 1  # names the steps, makes no file
    assert list(models.values()) in ([1], [1, 1])
    assert workers() <= before


def test_dask(notes: Path) -> None:
    with cluster() as address:
        for labels in ("labels", "more"):  # the same files of another run are other tasks
            job = demo_job(notes, labels, scheduler=address)
            job.run()
            check_files(job)
    assert len((notes / "models").read_text().split()) == 4


def test_shares(notes: Path) -> None:
    job = demo_job(notes)
    with pytest.raises(PartialError, match=FIRST):
        job.share((2, 3))
    for share in ((1, 3), (2, 3), (3, 3)):
        assert job.state() == "partly"
        job.share(share)
    demo_job(notes, how="dies").run()  # collects alone
    check_files(job)
    assert "up to date" in job.share((1, 3))


def test_a_killed_process_is_a_partial_error_and_the_next_run_goes_on(notes: Path) -> None:
    job = demo_job(notes, how="waits", workers=2)
    with killed_once_there(notes / "here"), pytest.raises(PartialError, match="--workers 2"):
        job.run()
    assert job.state() == "partly"
    demo_job(notes, how="waits").run()
    check_files(job)


@pytest.mark.slow
def test_the_task_of_a_killed_worker_is_done_by_another(notes: Path) -> None:
    with cluster(2, processes=True) as address, killed_once_there(notes / "here"):
        job = demo_job(notes, how="waits", scheduler=address)
        job.run()
    check_files(job)


@pytest.mark.slow
def test_a_task_that_ends_its_workers_is_a_partial_error(notes: Path) -> None:
    with cluster(2, processes=True, failures=0) as address, pytest.raises(PartialError, match="tcp://"):
        demo_job(notes, how="dies", scheduler=address).run()


@pytest.mark.parametrize(("how", "fault"), [("fails", "part 2"), ("edits", "demo demo with a different")])
def test_an_error_of_a_task_or_a_worker_with_other_input_is_reported(how: str, fault: str, notes: Path) -> None:
    with pytest.raises(CheckError, match=fault):
        demo_job(notes, how=how, workers=1).run()
    assert not (notes.parent / "labels" / "demo").exists()


def test_a_worker_ends_when_its_parent_is_killed() -> None:
    program = """
        import multiprocessing, time
        from concurrent.futures import ProcessPoolExecutor
        from relabel.store.executors import start_worker
        pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), start_worker)
        assert list(pool.map(abs, range(2))) == [0, 1]
        print(*pool._processes, flush=True)
        time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=60)
    for worker in alive:
        worker.kill()
    assert not alive
