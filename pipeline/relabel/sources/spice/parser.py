"""SPICE's parser: its jars, its command line, and the process that parses captions one by one.

The program is `worker`. If a caption terminates two processes, its row fails with the reason. pycocoevalcap contains
all jars except CoreNLP (GPL-3.0); users fetch it themselves.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from relabel.core.errors import MissingError
from relabel.core.java import OPTIONS, SILENCE, JavaError, LineProcess, find_jar, find_java, java_version
from relabel.core.runtime import Advance, ignore_progress
from relabel.datasets import load_manifest, locate
from relabel.sources.spice import worker
from relabel.store.files import input_sha256

INSTALL = "pip install 'relabel-itr[spice]'"
ATTEMPTS = 2
"""Maximum number of processes for one caption."""
START = 600.0
"""Timeout of a start in seconds. An idle machine needs a few seconds."""
PROBE = "A man rides a horse."
"""First text for every process, to detect errors that do not depend on a caption."""
PROBED = [["man", "horse", "ride"], ["horse"], ["man"]]
"""Expected answer to the probe."""
HUGE_PAGES = "-XX:+UseTransparentHugePages"
"""Option that saves 10% of the time on Linux, because the grammar and the charts are accessed at random."""
HEAP = "2G"
"""Maximum heap size of Java, sufficient for captions of up to about 150 words."""
_SMALL_HEAP = f"A heap of {HEAP} is enough for captions of up to about 150 words: free memory, or shorten the captions."

_SPICE = "spice/spice-1.0.jar"
_GRAPHS = "spice/lib/SceneGraphParser-1.0.jar"

Tuples = list[list[str]]


@dataclass(frozen=True)
class ParseFailure:
    """Reason why a caption has no tuples."""

    reason: str


Parsed = Tuples | ParseFailure


class SpiceParser:
    """Parser process. It starts with the first caption, and is restarted if it ends.

    `command`: returns the command line of the program. `silence`: timeout per caption in seconds. `start`: timeout of
    the start in seconds.
    """

    def __init__(self, command: Callable[[], list[str]], silence: float = SILENCE, start: float = START) -> None:
        self._command, self._silence, self._start = command, silence, start
        self._process: LineProcess | None = None

    def version(self) -> str:
        """Return a sha256 of everything that the tuples of a text depend on: the jars and the program."""
        depends = parser_files() | {"program": input_sha256(Path(worker.__file__))}
        return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()

    def parse(self, texts: Sequence[str], advance: Advance = ignore_progress) -> list[Parsed]:
        """Parse captions.

        `texts`: empty texts have no tuples and are not sent to the parser. `advance`: called with the number of texts
        finished since the last call. Returns tuples in the parser's order, including duplicates.
        """
        parses = []
        for text in texts:
            parses.append(self._parse(text) if text else [])
            advance(1)
        return parses

    def close(self) -> None:
        """End the process. The next caption starts a new one."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def _parse(self, text: str) -> Parsed:
        """Parse a caption, and retry with a new process if the process ends."""
        reason = ""
        for _ in range(ATTEMPTS):
            if self._process is None:
                self._process = self._started()
            try:
                return _answer(self._process, text, self._silence)
            except JavaError as error:
                reason = error.problem
                self.close()
        return ParseFailure(reason)

    def _started(self) -> LineProcess:
        """Start a process. Raises JavaError unless it parses the probe as expected."""
        process = LineProcess(self._command())
        try:
            answer = _answer(process, PROBE, self._start)
            # With incompatible jars, a process may start but give wrong parses.
            if answer != PROBED:
                raise JavaError(answer.reason if isinstance(answer, ParseFailure) else f"{PROBE!r} gives {answer}")
        except JavaError as error:
            process.close()
            hint = _SMALL_HEAP if re.search("heap|memory", error.problem, re.IGNORECASE) else "See `relabel doctor`."
            raise JavaError(f"SPICE's parser does not work: {error.problem}", hint=hint) from error
        return process


def _answer(process: LineProcess, text: str, silence: float) -> Parsed:
    """Request the tuples of a text. Raises JavaError if the process must be closed."""
    (line,) = process.ask([json.dumps(text)], silence=silence)
    try:
        reply = json.loads(line)
        if isinstance(reply, list):
            return reply
        if "failed" in reply:
            return ParseFailure(str(reply["failed"]))
        raise JavaError(f"the heap is too small: {reply['memory']}")
    except (ValueError, TypeError, KeyError):
        raise JavaError(f"invalid answer from Java: {line[:80]!r}") from None


def worker_command(data: Path, heap: str = HEAP) -> list[str]:
    """Return the command line of the program. `data`: folder of fetched files, to find CoreNLP."""
    if find_spec("jpype") is None:
        raise MissingError("JPype is not installed; the parser of spice needs it", hint=f"Run `{INSTALL}`.")
    java = find_java()
    options = [*OPTIONS, f"-Xmx{heap}", HUGE_PAGES]
    if int(re.split(r"\D", java_version(java))[0]) >= 22:  # otherwise Java warns about native code
        options.append("--enable-native-access=ALL-UNNAMED")
    config = {"jvm": str(_library(java)), "options": options, "jars": [str(jar) for jar in class_path(data)]}
    return [sys.executable, "-P", worker.__file__, json.dumps(config)]


def corenlp_jars(data: Path) -> list[Path]:
    """Find CoreNLP's code and models in `data/corenlp/`, pycocoevalcap's folder or the mirror."""
    return [locate("corenlp", file.name, data) for file in load_manifest("corenlp").files]


def class_path(data: Path) -> list[Path]:
    """Return the jars of the parser in class path order. Raises as `corenlp_jars` and `find_jar` do."""
    spice = find_jar(_SPICE)
    libraries = sorted((spice.parent / "lib").glob("*.jar"))  # may include any version of CoreNLP
    return [spice, *(jar for jar in libraries if not jar.name.startswith("stanford-corenlp")), *corenlp_jars(data)]


def parser_files() -> dict[str, str]:
    """Return the sha256 of every jar that tuples depend on, by role.

    The hashes of CoreNLP are taken from its dataset manifest; the files are verified when the parser starts.
    """
    corenlp = {file.name.removesuffix(".jar"): file.sha256 for file in load_manifest("corenlp").files}
    return {"spice": input_sha256(find_jar(_SPICE)), "scene_graphs": input_sha256(find_jar(_GRAPHS)), **corenlp}


def _library(java: Path) -> Path:
    """Find the library (libjvm) of a `java` command. The command may be a link into the runtime."""
    home = java.resolve().parents[1]
    for pattern in ("lib/server/libjvm.*", "lib/*/server/libjvm.so", "jre/lib/*/server/libjvm.so"):
        for path in sorted(home.glob(pattern)):
            return path
    hint = f"Set $RELABEL_JAVA to a runtime that has it, or install one with `{INSTALL}`."
    raise MissingError("no Java library (libjvm) in this folder", where=str(home), hint=hint)
