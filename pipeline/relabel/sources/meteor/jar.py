"""The METEOR 1.5 jar inside pycocoevalcap: its normaliser and its scorer.

`-norm` normalises every text of every pair anew, which takes half of METEOR's time; here each goes through it once.

The scorer's `-stdio` protocol: `SCORE ||| reference ||| ... ||| candidate` is answered by 23 statistics of the best
reference, `EVAL ||| statistics` by their score, twice. An `EVAL` without statistics is answered by an error, which
shows that the scorer has started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from relabel.core.java import find_jar, java_command
from relabel.core.line_process import JavaError, map_lines
from relabel.core.worker_pool import Failure, LineError, NoAnswerError, Program, WorkerPool
from relabel.sources.wordnet import find_meteor_jar

PARAPHRASES = "paraphrases.gz"
"""Name of the cut paraphrase table."""
RESTARTS = 10
"""How many processes may end within one call, whatever the line."""
_READY = re.compile(r"Error: specify Meteor stats")
_NUMBER = r"\d+(?:\.\d+)?(?:E-?\d+)?"
_STATISTICS = re.compile(rf"(?:{_NUMBER} ){{22}}{_NUMBER}")
_SCORE = re.compile(_NUMBER)


def paraphrases(language: str) -> Path:
    """Path of the paraphrase table; raises MissingError without pycocoevalcap."""
    return find_jar(f"meteor/data/paraphrase-{language}.gz")


def scorer_command(language: str, tables: Path, heap: str) -> list[str]:
    """Command line of a scorer of normalised texts, with the tables in a folder (see `meteor_tables`).

    `-norm` is normalise, then lower case; `-lower` is the latter alone.
    """
    folder = tables.resolve()
    options = ("-l", language, "-lower", "-a", folder / PARAPHRASES, "-d", folder)
    return java_command(f"-Xmx{heap}", "-jar", find_meteor_jar(), "-", "-", "-stdio", *options)


def normalise(texts: Sequence[str], language: str, silence: float) -> list[str]:
    """Normalise texts as METEOR's `-norm` does, bar lower case; each distinct text once.

    Parameters
    ----------
    texts : sequence of str
        PTB tokens.
    language : str
    silence : float
        Seconds.

    Returns
    -------
    list of str
        Words joined by one space; none holds `|||`, which METEOR's protocol reserves.

    Raises
    ------
    MissingError
        Without Java or pycocoevalcap.
    JavaError
        If the normaliser dies, hangs or gives a wrong number of lines.
    """
    lines = [_one_line(text) for text in texts]
    distinct = list(dict.fromkeys(line for line in lines if line))
    if not distinct:
        return [""] * len(lines)
    command = java_command("-cp", find_meteor_jar(), "edu.cmu.meteor.util.Normalizer", language, "true")
    try:
        found = map_lines(command, distinct, silence)
        if len(found) != len(distinct):
            raise JavaError(f"{len(distinct):,} lines went in, {len(found):,} came out")
    except JavaError as error:
        raise JavaError(f"METEOR's normaliser fails: {error.problem}", todo="Run it again.") from error
    normal = dict(zip(distinct, found, strict=True)) | {"": ""}
    return [normal[line] for line in lines]


class MeteorScorer:
    """Scores lines on up to `processes` processes, which stay for the next call.

    Parameters
    ----------
    command : callable
        Makes the command that starts one METEOR with `-stdio`; not called before it is needed.
    processes : int
    silence : float
        Seconds without an answer after which a process counts as hung.
    """

    def __init__(self, command: Callable[[], list[str]], processes: int, silence: float) -> None:
        program = Program(command, "EVAL", lambda line: bool(_READY.match(line)), silence, silence)
        self._pool = WorkerPool(program, processes, RESTARTS)
        self._scores: dict[str, float] = {}
        self.close = self._pool.close

    def score(self, lines: Sequence[str]) -> list[float]:
        """Score lines of the form `reference ||| ... ||| candidate`.

        Parameters
        ----------
        lines : sequence of str
            All texts normalised, none of them empty.

        Returns
        -------
        list of float
            METEOR of the best reference, 0..1.

        Raises
        ------
        LineError
            If no process would answer a line, after `ATTEMPTS` tries or `RESTARTS` restarts.
        """
        statistics = self._pool.ask([f"SCORE ||| {line}" for line in lines], _statistics, _give_up)
        new = {s: i for i, s in enumerate(statistics) if s not in self._scores}
        try:
            scores = self._pool.ask([f"EVAL ||| {s}" for s in new], _second_score, _give_up)
        except LineError as error:
            raise LineError(error.problem, list(new.values())[error.index], error.todo) from error
        self._scores.update(zip(new, scores, strict=True))
        return [self._scores[s] for s in statistics]


def _statistics(replies: list[str]) -> str:
    return _matched(_STATISTICS, replies[-1])


def _second_score(replies: list[str]) -> float | None:
    score = float(_matched(_SCORE, replies[-1]))
    return score if len(replies) == 2 else None


def _matched(form: re.Pattern[str], line: str) -> str:
    if form.fullmatch(line) is None:
        raise NoAnswerError.unexpected(line)
    return line


def _give_up(failure: Failure) -> NoReturn:
    if not failure.started:
        todo = "See `relabel doctor`; the parameter `heap` says how much memory a process may take."
        raise LineError(f"METEOR does not start: {failure.reason}", failure.question, todo)
    attempts = f"{failure.attempts} of {failure.ended} processes that ended did so here"
    todo = "Run it again; if it fails there again, look at these captions."
    raise LineError(f"{failure.reason}; {attempts}", failure.question, todo)


def _one_line(text: str) -> str:
    # As pycocoevalcap does to the candidate; it leaves the references as they are, and fails if one holds `|||`.
    return text.replace("\r", " ").replace("\n", " ").replace("|||", "").replace("  ", " ").strip(" ")
