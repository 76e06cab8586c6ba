"""METEOR 1.5 inside pycocoevalcap: its table of paraphrases, its text normaliser and its stemmer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relabel.core.java import JavaError, LineFilter, find_jar, java_command
from relabel.core.runtime import Runtime
from relabel.sources.wordnet import find_meteor_jar

LONGEST = 1024
"""Maximum number of words of a text, limited by the fields of a rank in `relabel.sources.meteor.align`."""
_SILENCE = 600.0  # timeout in seconds for all lines; 100,000 lines take three


def paraphrase_file() -> Path:
    """Return the path of the table of English paraphrases. Raises MissingError if pycocoevalcap is not installed."""
    return find_jar("meteor/data/paraphrase-en.gz")


def normalise(texts: Sequence[str], runtime: Runtime) -> list[str]:
    """Normalise texts as METEOR's `-norm` does, but without lower-casing.

    `texts`: PTB tokens. Returns words joined by single spaces, without `|||`, METEOR's separator of texts.
    """
    return _run(("edu.cmu.meteor.util.Normalizer", "en", "true"), [_one_line(text) for text in texts], runtime)


def stem(words: Sequence[str], runtime: Runtime) -> list[str]:
    """Return the stem of each word."""
    return _run(("Stemmer", "en"), words, runtime)


def _run(program: tuple[str, ...], lines: Sequence[str], runtime: Runtime) -> list[str]:
    """Return a program's answer to each line. Each distinct line is sent once; empty lines are returned unchanged."""
    distinct = list(dict.fromkeys(line for line in lines if line))
    if not distinct:
        return [""] * len(lines)
    # If the runtime keeps programs, the program stays for later short calls.
    push = None if runtime.kept is None else ()
    run = runtime.keep(program, lambda: LineFilter(lambda: java_command("-cp", find_meteor_jar(), *program), push))
    try:
        answers = run(distinct, _SILENCE)
        if len(answers) != len(distinct):
            raise JavaError(f"got {len(answers):,} answers for {len(distinct):,} lines")
    except JavaError as error:
        raise JavaError(f"METEOR's {program[0]} failed: {error.problem}", hint="Run it again.") from error
    by_line = dict(zip(distinct, answers, strict=True)) | {"": ""}
    return [by_line[line] for line in lines]


def _one_line(text: str) -> str:
    """Return a text on one line, without `|||`."""
    # pycocoevalcap does this only for the candidate, and fails if a reference contains `|||`.
    return text.replace("\r", " ").replace("\n", " ").replace("|||", "").replace("  ", " ").strip(" ")
