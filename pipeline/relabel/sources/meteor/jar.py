"""METEOR 1.5 inside pycocoevalcap: its table of paraphrases, its normaliser of texts and its stemmer of words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relabel.core.java import JavaError, LineFilter, find_jar, java_command
from relabel.core.runtime import Runtime
from relabel.sources.wordnet import find_meteor_jar

LONGEST = 1024
"""Most words of a text. In `relabel.sources.meteor.align`, the fields of a rank are wide enough for these."""
_SILENCE = 600.0  # seconds that a program may take for all its lines; 100,000 lines take three


def paraphrase_file() -> Path:
    """Return the path of the table of English paraphrases; raise MissingError without pycocoevalcap."""
    return find_jar("meteor/data/paraphrase-en.gz")


def normalise(texts: Sequence[str], runtime: Runtime) -> list[str]:
    """Normalise texts as METEOR's `-norm` does, without its conversion to lower case.

    `texts`: PTB tokens. Returns list of str: words joined by one space, without `|||`, METEOR's separator of texts.
    """
    return _run(("edu.cmu.meteor.util.Normalizer", "en", "true"), [_one_line(text) for text in texts], runtime)


def stem(words: Sequence[str], runtime: Runtime) -> list[str]:
    """Return the stem of each word."""
    return _run(("Stemmer", "en"), words, runtime)


def _run(program: tuple[str, ...], lines: Sequence[str], runtime: Runtime) -> list[str]:
    """Return a program's answer to each line, asked once for each distinct line; an empty line answers itself."""
    distinct = list(dict.fromkeys(line for line in lines if line))
    if not distinct:
        return [""] * len(lines)
    # A program stays for the next few lines if the runtime keeps programs.
    push = None if runtime.kept is None else ()
    run = runtime.keep(program, lambda: LineFilter(lambda: java_command("-cp", find_meteor_jar(), *program), push))
    try:
        answers = run(distinct, _SILENCE)
        if len(answers) != len(distinct):
            raise JavaError(f"{len(distinct):,} lines went in, {len(answers):,} came out")
    except JavaError as error:
        raise JavaError(f"METEOR's {program[0]} fails: {error.problem}", todo="Run it again.") from error
    by_line = dict(zip(distinct, answers, strict=True)) | {"": ""}
    return [by_line[line] for line in lines]


def _one_line(text: str) -> str:
    """Return a text on one line and without `|||`."""
    # pycocoevalcap does this to the candidate only, and fails if a reference contains `|||`.
    return text.replace("\r", " ").replace("\n", " ").replace("|||", "").replace("  ", " ").strip(" ")
