"""Contract: a run in a process of its own that is killed, finds the disk full, or has a second run beside it, ends
with the bytes of an undisturbed run when it is rerun. The lock of a dead process blocks no run.

The drills of all stages (`trails.py`) run in forks of one process, and replace calls of Python alone.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.drills.roads import Road

from relabel.store.artefact import exclusive

pytestmark = pytest.mark.slow
FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
"""
"""No file may grow beyond 700 bytes: what writers in C++ meet as well."""
HOLD = """
import sys, time
from pathlib import Path
from relabel.store.artefact import exclusive
with exclusive(Path(sys.argv[1]), Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(300)
"""


def test_a_killed_run_ends_with_the_same_bytes(road: Road, tmp_path: Path) -> None:
    folder = road.lay(tmp_path / "project")
    process = road.start(folder)
    try:
        process.communicate(timeout=0.8 * road.seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    road.finish(folder)


def test_a_full_disk_is_an_error_and_loses_nothing(road: Road, tmp_path: Path) -> None:
    folder = road.lay(tmp_path / "project")
    process = road.start(folder, FULL)
    _, output = process.communicate(timeout=240)
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert (process.returncode, len(errors)) == (5, 1), output
    assert "Free some space and run it again" in errors[0]
    road.finish(folder)


def test_two_simultaneous_runs_equal_one(road: Road, tmp_path: Path) -> None:
    folder = road.lay(tmp_path / "project")
    for process in [road.start(folder) for _ in range(2)]:
        _, output = process.communicate(timeout=240)
        assert process.returncode == 0, output
    road.finish(folder)


def test_the_second_run_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    out, folder, notes, held = tmp_path / "out", tmp_path / ".work", [], threading.Event()

    class Notes:
        def note(self, text: str) -> None:
            notes.append(text)
            held.set()

    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, str(out), str(folder)], stdout=pipe, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        killer = threading.Thread(target=lambda: (held.wait(60), first.send_signal(signal.SIGKILL)))
        killer.start()
        with exclusive(out, folder, Notes()):  # type: ignore[arg-type]
            assert notes == [f"waiting for another run on {out}"]
        killer.join()
    with exclusive(out, folder, Notes()):  # type: ignore[arg-type]
        assert len(notes) == 1
    assert [p.name for p in folder.iterdir()] == ["out.lock"]
