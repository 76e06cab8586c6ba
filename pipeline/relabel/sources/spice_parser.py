"""SPICE's parser asked from Python: captions in order, a process that is started again, and the caption it died of.

The program (`spice_worker`) answers caption by caption, so the first one without an answer is the one that a dead or
silent process choked on: no need to halve a chunk. It is asked twice; then it is a failed row, with the reason, unless
the program cannot parse any caption at all.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from relabel.errors import MissingError, PartialError
from relabel.java import OPTIONS, find_java, java_version
from relabel.line_process import JavaError, LineProcess, SilentError
from relabel.sources import spice_worker
from relabel.sources.spice_jars import class_path

INSTALL = "pip install 'relabel-itr[spice]'"
ATTEMPTS = 2
"""How often one caption may end a process before it is a failed row."""
START = 600.0
"""Seconds that a start may take: a few on an idle machine."""
PROBE = "A man rides a horse."
"""What every process is asked first: where it fails, no caption is to blame."""
PROBED = [["man", "horse", "ride"], ["horse"], ["man"]]
HUGE_PAGES = "-XX:+UseTransparentHugePages"
"""A tenth faster where Linux gives them: the grammar and the charts are read all over."""
_HEAP = "Raise the heap (`heap` in params.yaml): 2G is enough for captions of up to about 150 words."
_DOCTOR = "See `relabel doctor`."

Tuples = list[list[str]]


@dataclass(frozen=True)
class Unparsed:
    """Why a caption has no tuples."""

    reason: str


Parsed = Tuples | Unparsed


class _Ended(Exception):  # noqa: N818
    """A process that will answer no more."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SpiceParser:
    """A parser process that starts with the first caption and starts again when it ends.

    Parameters
    ----------
    command : callable
        Makes the command line of the program.
    silence : float
        Seconds that one caption may take.
    start : float
        Seconds that the program may take to be ready.
    """

    def __init__(self, command: Callable[[], list[str]], silence: float, start: float = START) -> None:
        self._command, self._silence, self._start_limit = command, silence, start
        self._process: LineProcess | None = None
        self._lines: list[str] = []
        self._lock = threading.Lock()  # two threads share the process by turns

    def parse(self, texts: Sequence[str], advance: Callable[[int], None] = lambda _: None) -> list[Parsed]:
        """Parse captions.

        Parameters
        ----------
        texts : sequence of str
            An empty one has no tuples and is not asked.
        advance : callable
            Told how many more are done.

        Returns
        -------
        list of Parsed
            Tuples in the parser's order, duplicates as they come.

        Raises
        ------
        MissingError
            Without Java, JPype, the jars; CheckError if a jar is not the one.
        JavaError
            If the program does not start, or parses nothing.
        """
        if not any(texts):
            advance(len(texts))
            return [[] for _ in texts]
        with self._lock:
            return self._parse(texts, advance)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
        self._process, self._lines = None, []

    def _parse(self, texts: Sequence[str], advance: Callable[[int], None]) -> list[Parsed]:
        found: list[Parsed] = []
        attempts = 0
        while len(found) < len(texts):
            before = len(found)
            try:
                for answer in self._answers(texts[before:]):
                    found.append(answer)
                    advance(1)
                continue
            except _Ended as ended:
                self.close()
                attempts = attempts + 1 if len(found) == before else 1
                if attempts >= ATTEMPTS:
                    found.append(Unparsed(ended.reason))
                    advance(1)
                    attempts = 0
            except BaseException:
                self.close()  # what is in flight must not be taken for an answer to the next call
                raise
        return found

    def _answers(self, texts: Sequence[str]) -> Iterator[Parsed]:
        """Yield an answer a caption, in order; _Ended when the process will give no more."""
        process = self._started()
        process.send(json.dumps(text) for text in texts if text)
        for text in texts:
            yield self._answer(process, self._silence) if text else []

    def _answer(self, process: LineProcess, silence: float) -> Parsed:
        said = self._line(process, silence)
        if isinstance(said, list):
            return said
        if isinstance(said, dict) and "failed" in said:
            return Unparsed(str(said["failed"]))
        if isinstance(said, dict) and "memory" in said:
            raise _Ended(f"the heap is too small: {said['memory']}")
        raise _Ended(f"the parser said {json.dumps(said)[:80]}, which is no answer")

    def _started(self) -> LineProcess:
        """Start the program if it does not run, and see that it parses."""
        if self._process is None:
            self._process = process = LineProcess(self._command())
            try:
                said = self._line(process, self._start_limit)
                if said != {"ready": True}:
                    raise _Ended(str(said.get("dead", said) if isinstance(said, dict) else said))
                process.send([json.dumps(PROBE)])
                answer = self._answer(process, self._start_limit)
                if answer != PROBED:
                    what = answer.reason if isinstance(answer, Unparsed) else f"{PROBE!r} gives {answer}"
                    raise _Ended(what)
            except _Ended as ended:
                todo = _HEAP if _short(ended.reason) else _DOCTOR
                raise JavaError(f"SPICE's parser does not work: {ended.reason}", todo=todo) from ended
        return self._process

    def _line(self, process: LineProcess, silence: float) -> Any:
        """Wait for one line and read it."""
        while not self._lines:
            try:
                more = process.receive(silence)
            except SilentError:
                raise _Ended(f"no answer within {silence:g} s") from None
            if more is None:
                code = process.exit_code()
                raise _Ended(f"Java ended with exit code {code}{process.complaint()}")
            self._lines = more[::-1]
        line = self._lines.pop()
        try:
            return json.loads(line)
        except ValueError:
            raise _Ended(f"the parser said {line[:80]!r}, which is no answer") from None


def worker_command(data: Path, heap: str) -> list[str]:
    """Command line of the program.

    Raises
    ------
    MissingError
        Without Java, JPype, pycocoevalcap or CoreNLP.
    CheckError
        If what is there is not CoreNLP 3.6.0.
    PartialError
        If Java does not say where it lies.
    """
    java = find_java()
    major = _major(java_version(java))
    _check_jpype(major)
    options = [*OPTIONS, f"-Xmx{heap}", HUGE_PAGES]
    if major >= 22:  # it would warn of native code otherwise, and refuse it one day
        options.append("--enable-native-access=ALL-UNNAMED")
    config = {"jvm": str(_library(java)), "options": options, "jars": [str(jar) for jar in class_path(data)]}
    return [sys.executable, "-P", spice_worker.__file__, json.dumps(config)]


def _check_jpype(major: int) -> None:
    try:
        version = metadata.version("JPype1")
    except metadata.PackageNotFoundError:
        raise MissingError("the parser of spice needs JPype, which is not installed", todo=f"`{INSTALL}`") from None
    if major < 9 and tuple(map(int, version.split(".")[:2])) >= (1, 6):
        what = f"JPype {version} needs Java 9 or later, this is Java {major}"
        raise MissingError(what, todo="`pip install 'JPype1<1.6'`, or take a later Java.")


def _library(java: Path) -> Path:
    """Find the library of a `java`, which says itself where it lies: the command may be a link or a script."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    found = re.search(r"^\s*java\.home = (.+)$", done.stderr + done.stdout, re.MULTILINE)
    if found is None:
        raise PartialError("does not say where it lies (java.home)", where=str(java), todo=_DOCTOR)
    home = Path(found[1].strip())
    for pattern in ("lib/server/libjvm.*", "lib/*/server/libjvm.so", "bin/server/jvm.dll"):
        for path in sorted(home.glob(pattern)):
            if path.suffix in (".so", ".dylib", ".dll"):
                return path
    raise MissingError("has no Java library (libjvm)", where=str(home), todo=_DOCTOR)


def _major(version: str) -> int:
    numbers = re.findall(r"\d+", version)
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _short(reason: str) -> bool:
    return any(word in reason for word in ("heap", "OutOfMemory", "memory"))
