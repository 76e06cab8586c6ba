"""SPICE's parser: its jars, its command line, and the processes that answer caption by caption.

The program is `worker`, which speaks the protocol of `WorkerPool`. A caption that ends two processes is a failed row,
with the reason. pycocoevalcap brings all jars but CoreNLP, which is the user's to fetch (GPL-3.0).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError, MissingError, PartialError
from relabel.core.java import OPTIONS, find_jar, find_java, java_version
from relabel.core.line_process import JavaError
from relabel.core.progress import Advance, ignore_progress
from relabel.core.worker_pool import Failure, NoAnswerError, Program, WorkerPool
from relabel.datasets import Content, load_manifest, locate
from relabel.datasets.registry import check_file
from relabel.sources.spice import worker
from relabel.store.atomic import sha256_file

INSTALL = "pip install 'relabel-itr[spice]'"
START = 600.0
"""Seconds that a start may take: a few on an idle machine."""
PROBE = "A man rides a horse."
"""First question to every process: where it fails, no caption is to blame."""
PROBED = [["man", "horse", "ride"], ["horse"], ["man"]]
HUGE_PAGES = "-XX:+UseTransparentHugePages"
"""A tenth faster where Linux gives them: the grammar and the charts are read all over."""
_HEAP = "Raise the heap (`heap` in params.yaml): 2G is enough for captions of up to about 150 words."
_DOCTOR = "See `relabel doctor`."

CORENLP = "RELABEL_CORENLP"
"""Names a folder that holds CoreNLP's two jars; else they are looked for as any other dataset."""
_SPICE = "spice/spice-1.0.jar"
_GRAPHS = "spice/lib/SceneGraphParser-1.0.jar"
_NOT_HERE = "the parser of spice needs CoreNLP 3.6.0, which is not here"
_FETCH = "Get it with `relabel fetch corenlp` (385 MB, GPL-3.0)."

Tuples = list[list[str]]


@dataclass(frozen=True)
class Unparsed:
    """Why a caption has no tuples."""

    reason: str


Parsed = Tuples | Unparsed


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
        self._pool = WorkerPool(Program(command, json.dumps(PROBE), _is_ready, silence, start))
        self.close = self._pool.close

    def parse(self, texts: Sequence[str], advance: Advance = ignore_progress) -> list[Parsed]:
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
        questions = [json.dumps(text) for text in texts if text]
        answers: Iterator[Parsed] = iter(self._pool.ask(questions, _parsed, _unparsed, advance))
        advance(len(texts) - len(questions))
        return [next(answers) if text else [] for text in texts]


def _is_ready(line: str) -> bool:
    """Read the lines before the first answer: `{"ready": true}`, then the tuples of the probe."""
    reply = _json(line)
    if reply == {"ready": True}:
        return False
    if isinstance(reply, dict) and "dead" in reply:
        raise NoAnswerError(str(reply["dead"]))
    answer = _parsed([line])
    if answer != PROBED:
        raise NoAnswerError(answer.reason if isinstance(answer, Unparsed) else f"{PROBE!r} gives {answer}")
    return True


def _parsed(replies: list[str]) -> Parsed:
    """Read an answer, which is one line."""
    reply = _json(replies[0])
    if isinstance(reply, list):
        return reply
    if isinstance(reply, dict) and "failed" in reply:
        return Unparsed(str(reply["failed"]))
    if isinstance(reply, dict) and "memory" in reply:
        raise NoAnswerError(f"the heap is too small: {reply['memory']}")
    raise NoAnswerError.unexpected(replies[0])


def _unparsed(failure: Failure) -> Parsed:
    """Fail the caption, unless the program cannot parse any caption at all."""
    if failure.started:
        return Unparsed(failure.reason)
    todo = _HEAP if any(word in failure.reason for word in ("heap", "OutOfMemory", "memory")) else _DOCTOR
    raise JavaError(f"SPICE's parser does not work: {failure.reason}", todo=todo)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise NoAnswerError.unexpected(line) from None


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
    return [sys.executable, "-P", worker.__file__, json.dumps(config)]


def corenlp_jars(data: Path) -> list[Path]:
    """Find CoreNLP's code and models: in $RELABEL_CORENLP, `data/corenlp/`, pycocoevalcap's folder or the mirror.

    Raises
    ------
    MissingError
        If a jar is not there.
    CheckError
        If what is there is not CoreNLP 3.6.0, whole.
    """
    given = os.environ.get(CORENLP)
    files = load_manifest("corenlp").files
    if given:
        return [_given(Path(given) / file.name, file.contents) for file in files]
    found = []
    for file in files:
        try:
            found.append(locate("corenlp", file.name, data))
        except MissingError as error:
            raise MissingError(_NOT_HERE, where=error.where, todo=_FETCH) from error
        except CheckError as error:
            todo = f"Delete it: half a download, or another version. {_FETCH}"
            raise CheckError(error.problem, where=error.where, todo=todo) from error
    return found


def class_path(data: Path) -> list[Path]:
    """List the jars that the parser runs with, in order; raises as `corenlp_jars`, and MissingError as `find_jar`."""
    spice = find_jar(_SPICE)
    beside = sorted((spice.parent / "lib").glob("*.jar"))  # CoreNLP may lie there too, of whatever version
    return [spice, *(jar for jar in beside if not jar.name.startswith("stanford-corenlp")), *corenlp_jars(data)]


def parser_files() -> dict[str, str]:
    """Name what a caption's tuples depend on beside its text: sha256 of the jars, by what they are.

    Those of CoreNLP are what the manifest says: they are checked where they are used.
    """
    corenlp = {file.name.removesuffix(".jar"): file.sha256 for file in load_manifest("corenlp").files}
    return {"spice": sha256_file(find_jar(_SPICE)), "scene_graphs": sha256_file(find_jar(_GRAPHS)), **corenlp}


def _given(path: Path, contents: Sequence[Content]) -> Path:
    if not path.is_file():
        raise MissingError(f"${CORENLP} names a folder without this file", where=str(path), todo=_FETCH)
    try:
        return check_file(path, contents)
    except CheckError as error:
        todo = f"Half a download, or another version. {_FETCH}"
        raise CheckError(error.problem, where=error.where, todo=todo) from error


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
