"""Contract: of two runs on one folder, the second waits with a message, and both succeed with the bytes of one run.
The lock of a dead process blocks no run.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest


def together(road: Any, folder: Path) -> str:
    """Start every stage twice at the same time; return the output of both."""
    road.lay(folder)
    heard = ""
    for stage in road.stages:
        runs = [road.start(folder, stage) for _ in range(2)]
        for run in runs:
            _, output = run.communicate(timeout=240)
            assert run.returncode == 0, output
            heard += output
    return heard


def test_two_simultaneous_runs_equal_one(small: Any, tmp_path: Path) -> None:
    together(small, tmp_path / "project")
    small.compare(tmp_path / "project")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_simultaneous_runs_of_all_stages_equal_one(full: Any, tmp_path: Path) -> None:
    together(full, tmp_path / "project")
    full.compare(tmp_path / "project")


HOLD = """
import sys, time
from pathlib import Path
from relabel.store.artefact import exclusive
with exclusive(Path(sys.argv[1]), Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(300)
"""


def test_the_second_run_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    import subprocess
    import sys
    import threading

    from relabel.store.artefact import exclusive

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
