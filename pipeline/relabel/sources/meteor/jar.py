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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relabel.core.java import LINES, JavaError, LineFilter, LineProcess, find_jar, java_command
from relabel.sources.wordnet import find_meteor_jar

_MOST_SCORES = 1 << 18  # scores of statistics that are remembered: 100 MB
LINES_PER_PROCESS = 2000
"""Number of lines that justify the start of another process."""
_READY = re.compile("Error: specify Meteor stats.*")
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


def normaliser(language: str, kept: bool = False) -> LineFilter:
    """Return METEOR's normaliser; `kept`: whether its program stays for the next few texts."""
    command = "edu.cmu.meteor.util.Normalizer", language, "true"
    return LineFilter(lambda: java_command("-cp", find_meteor_jar(), *command), () if kept else None)


def normalise(texts: Sequence[str], run: LineFilter, silence: float) -> list[str]:
    """Normalise texts as METEOR's `-norm` does, without its conversion to lower case; each distinct text once.

    `texts`: PTB tokens. `run`: a `normaliser`. `silence`: seconds after which Java is considered hung. Returns list
    of str: words joined by one space, without `|||`, which METEOR's protocol reserves.
    """
    lines = [_one_line(text) for text in texts]
    distinct = list(dict.fromkeys(line for line in lines if line))
    if not distinct:
        return [""] * len(lines)
    try:
        normalised = run(distinct, silence)
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
        self._command, self._processes, self._silence = command, processes, silence
        self._idle: list[LineProcess] = []
        self._scores: dict[str, float] = {}

    def score(self, lines: Sequence[str]) -> list[float]:
        """Score lines of the form `reference ||| ... ||| candidate`.

        `lines`: all texts are normalised and not empty. Returns list of float: METEOR of the best reference, 0..1.
        Raises JavaError with the index of the line at fault as `answered`.
        """

        def exchange(start: int) -> list[float]:
            try:
                return self._exchange(lines[start : start + LINES])
            except JavaError as error:
                error.answered += start
                error.todo = error.todo or "Run it again. If it fails at the same line, check these captions."
                raise

        try:
            with ThreadPoolExecutor(min(self._processes, 1 + len(lines) // LINES_PER_PROCESS)) as threads:
                return [score for scores in threads.map(exchange, range(0, len(lines), LINES)) for score in scores]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes."""
        while self._idle:
            self._idle.pop().close()

    def _exchange(self, lines: Sequence[str]) -> list[float]:
        """Score at most `LINES` lines by a process that is free, or by another one."""
        process = self._idle.pop() if self._idle else self._start()
        # Other threads may read the scores of before.
        self._scores = known = self._scores if len(self._scores) < _MOST_SCORES else {}
        statistics = self._ask(process, [f"SCORE ||| {line}" for line in lines], 1, _STATISTICS)
        # Many pairs have equal statistics, so each distinct list of statistics is evaluated once.
        new = [each for each in dict.fromkeys(statistics) if each not in known]
        try:
            scores = self._ask(process, [f"EVAL ||| {each}" for each in new], 2, _SCORE)
        except JavaError as error:
            error.answered = statistics.index(new[error.answered])
            raise
        known.update(zip(new, map(float, scores[::2]), strict=True))
        self._idle.append(process)
        return [known[each] for each in statistics]

    def _ask(self, process: LineProcess, lines: Sequence[str], answers: int, form: re.Pattern[str]) -> list[str]:
        found = process.ask(lines, answers, self._silence)
        for i, line in enumerate(found):
            if form.fullmatch(line) is None:
                process.close()
                raise JavaError(f"Java said {line[:80]!r}, which is no answer", answered=i // answers)
        return found

    def _start(self) -> LineProcess:
        process = LineProcess(self._command())
        try:
            self._ask(process, ["EVAL"], 1, _READY)
        except JavaError as error:
            todo = "Run `relabel doctor`. The parameter `heap` limits the memory of a process."
            raise JavaError(f"METEOR does not start: {error.problem}", todo=todo) from error
        return process


def _one_line(text: str) -> str:
    """Return a text on one line and without `|||`."""
    # pycocoevalcap does this to the candidate only, and fails if a reference contains `|||`.
    return text.replace("\r", " ").replace("\n", " ").replace("|||", "").replace("  ", " ").strip(" ")
