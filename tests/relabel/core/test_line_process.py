"""Contract: a program that reads and writes lines never blocks or outlives its caller; its last output explains a
failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from relabel.core.errors import MissingError, PartialError
from relabel.core.java import JavaError, LineProcess, SilentError, map_lines

pytestmark = pytest.mark.skipif(os.name == "nt", reason="process groups")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


ECHO = python("import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()")


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


def test_more_data_than_a_pipe_holds_in_both_directions() -> None:
    lines = [f"{i} " + "x" * 1000 for i in range(20_000)]  # 20 MB; a pipe holds 64 KiB
    assert map_lines(ECHO, lines, silence=60) == lines


def test_every_character_survives() -> None:
    lines = ["", "😀", "\u2028 and \x85 end no line here", "a\x00b", "שלום", "\x0c", "tab\t"]
    assert map_lines(ECHO, lines) == lines


def test_a_noisy_error_output_blocks_nothing() -> None:
    noisy = python("import sys\nsys.stderr.write('noise ' * 200_000)\nprint(len(sys.stdin.read()))")
    assert map_lines(noisy, ["abc"], silence=60) == ["4"]


def test_windows_line_ends() -> None:
    assert map_lines(python("print('a\\r')"), []) == ["a"]


def test_a_silent_program_is_killed() -> None:
    started = time.monotonic()
    with pytest.raises(SilentError, match=r"said nothing for 0.3 s.*thinking"):
        map_lines(python("import sys, time\nprint('thinking', file=sys.stderr, flush=True)\ntime.sleep(60)"), [], 0.3)
    assert time.monotonic() - started < 20


def test_exit_code_and_last_output() -> None:
    with pytest.raises(JavaError, match=r"exit code 3 .*out of memory") as raised:
        map_lines(python("import sys\nprint('out of memory', file=sys.stderr)\nsys.exit(3)"), ["a"] * 100_000)
    assert isinstance(raised.value, PartialError)
    assert raised.value.exit_code == 5


def test_a_missing_program() -> None:
    with pytest.raises(MissingError, match="No such file"):
        LineProcess(["/nowhere/java"])


def test_its_process_group_is_killed() -> None:
    process = LineProcess(["/bin/sh", "-c", "sleep 600 & echo $!; wait"])
    (child,) = process.receive(10) or []
    process.kill()
    assert has_ended(int(child))


def test_killed_when_garbage_collected() -> None:
    process = LineProcess(python("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"))
    (pid,) = process.receive(20) or []
    del process
    assert has_ended(int(pid))


@pytest.mark.parametrize("end", ["leave", "raise", "killed"])
def test_ends_with_its_parent(end: str) -> None:
    parent = f"""
        import os, signal, sys
        from relabel.core.java import LineProcess
        child = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
        process = LineProcess([sys.executable, "-c", child])
        print(process.receive(20)[0], flush=True)
        if {end!r} == "raise": raise KeyboardInterrupt
        if {end!r} == "killed": os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(python(parent), capture_output=True, text=True, timeout=60, check=False)
    assert has_ended(int(done.stdout))
    assert (done.returncode == -signal.SIGKILL) == (end == "killed")


def test_a_forked_child_does_not_end_the_program() -> None:
    process = LineProcess(ECHO)
    pid = os.fork()
    if pid == 0:
        process.kill()
        os._exit(0)
    os.waitpid(pid, 0)
    process.send(["still there"])
    assert process.receive(20) == ["still there"]
    process.kill()
