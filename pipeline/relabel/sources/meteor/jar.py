"""The METEOR 1.5 jar inside pycocoevalcap: its normaliser and its scorer.

METEOR's option `-norm` normalises both texts of every pair, which takes half of its time. This module normalises each
text once and scores without `-norm`.

The scorer's `-stdio` protocol has two requests. `SCORE ||| reference ||| ... ||| candidate` is answered by 23
statistics of the best reference, and `EVAL ||| statistics` by their score, twice. An `EVAL` without statistics is
answered by an error, which shows that the scorer has started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from relabel.core.java import JavaError, find_jar, java_command, map_lines
from relabel.core.worker_pool import Failure, LineError, NoAnswerError, Program, WorkerPool
from relabel.sources.wordnet import find_meteor_jar

RESTARTS = 10
"""Largest number of processes that may end within one call, over all lines."""
_READY = re.compile(r"Error: specify Meteor stats")
_NUMBER = r"\d+(?:\.\d+)?(?:E-?\d+)?"
_STATISTICS = re.compile(rf"(?:{_NUMBER} ){{22}}{_NUMBER}")
_SCORE = re.compile(_NUMBER)


def paraphrase_table(language: str) -> Path:
    """Return the path of the paraphrase table; raise MissingError without pycocoevalcap."""
    return find_jar(f"meteor/data/paraphrase-{language}.gz")


def scorer_command(language: str, heap: str) -> list[str]:
    """Return the command line of a scorer of normalised texts; `heap` is the largest heap of Java, as `2G`."""
    # `-norm` would normalise and convert to lower case; `-lower` does the second step only.
    return java_command(f"-Xmx{heap}", "-jar", find_meteor_jar(), "-", "-", "-stdio", "-l", language, "-lower")


def normalise(texts: Sequence[str], language: str, silence: float) -> list[str]:
    """Normalise texts as METEOR's `-norm` does, without its conversion to lower case; each distinct text once.

    `texts`: PTB tokens. `silence`: seconds without an answer after which Java is considered hung. Returns list of str:
    words joined by one space, without `|||`, which METEOR's protocol reserves.
    """
    lines = [_one_line(text) for text in texts]
    distinct = list(dict.fromkeys(line for line in lines if line))
    if not distinct:
        return [""] * len(lines)
    command = java_command("-cp", find_meteor_jar(), "edu.cmu.meteor.util.Normalizer", language, "true")
    try:
        normalised = map_lines(command, distinct, silence)
        if len(normalised) != len(distinct):
            raise JavaError(f"{len(distinct):,} lines went in, {len(normalised):,} came out")
    except JavaError as error:
        raise JavaError(f"METEOR's normaliser fails: {error.problem}", todo="Run it again.") from error
    by_line = dict(zip(distinct, normalised, strict=True)) | {"": ""}
    return [by_line[line] for line in lines]


class MeteorScorer:
    """Scorer of lines on up to `processes` Java processes, which stay for the next call.

    `command`: returns the command that starts one METEOR with `-stdio`; called at every start. `silence`: seconds
    without an answer after which a process is considered hung.
    """

    def __init__(self, command: Callable[[], list[str]], processes: int, silence: float) -> None:
        program = Program(command, "EVAL", lambda line: bool(_READY.match(line)), silence, silence)
        self._pool = WorkerPool(program, processes, RESTARTS)
        self._scores: dict[str, float] = {}
        self.close = self._pool.close

    def score(self, lines: Sequence[str]) -> list[float]:
        """Score lines of the form `reference ||| ... ||| candidate`.

        `lines`: all texts are normalised and not empty. Returns list of float: METEOR of the best reference, 0..1.
        """
        # Many pairs have equal statistics, so each distinct list of statistics is evaluated once.
        statistics = self._pool.ask([f"SCORE ||| {line}" for line in lines], _statistics, _give_up)
        new = {s: i for i, s in enumerate(statistics) if s not in self._scores}
        try:
            scores = self._pool.ask([f"EVAL ||| {s}" for s in new], _second_score, _give_up)
        except LineError as error:
            # The caller knows lines of texts: name the first line that has these statistics.
            raise LineError(error.problem, list(new.values())[error.index], error.todo) from error
        self._scores.update(zip(new, scores, strict=True))
        return [self._scores[s] for s in statistics]


def _statistics(replies: list[str]) -> str:
    """Read the answer to `SCORE`."""
    return _matched(_STATISTICS, replies[-1])


def _second_score(replies: list[str]) -> float | None:
    """Read the answer to `EVAL`, two lines of the same score; return None while the second is missing."""
    score = float(_matched(_SCORE, replies[-1]))
    return score if len(replies) == 2 else None


def _matched(form: re.Pattern[str], line: str) -> str:
    """Return a line of the expected form; raise NoAnswerError otherwise."""
    if form.fullmatch(line) is None:
        raise NoAnswerError.unexpected(line)
    return line


def _give_up(failure: Failure) -> NoReturn:
    """Raise the error of a line that no process has answered."""
    if not failure.started:
        todo = "Run `relabel doctor`. The parameter `heap` limits the memory of a process."
        raise LineError(f"METEOR does not start: {failure.reason}", failure.question, todo)
    attempts = f"{failure.attempts} of {failure.ended} processes that ended did so here"
    todo = "Run it again. If it fails at the same line, check these captions."
    raise LineError(f"{failure.reason}; {attempts}", failure.question, todo)


def _one_line(text: str) -> str:
    """Return a text on one line and without `|||`."""
    # pycocoevalcap does this to the candidate only, and fails if a reference contains `|||`.
    return text.replace("\r", " ").replace("\n", " ").replace("|||", "").replace("  ", " ").strip(" ")
