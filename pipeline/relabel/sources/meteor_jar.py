"""The METEOR 1.5 jar inside pycocoevalcap: its command line, and its normaliser on its own.

`-norm` normalises every text of every pair anew, which takes half of METEOR's time; here each goes through it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relabel.java import find_jar, java_command
from relabel.line_process import JavaError, map_lines

PARAPHRASES = "paraphrases.gz"
"""Name of the cut paraphrase table."""


def jar() -> Path:
    """Path of the jar; raises MissingError without pycocoevalcap."""
    return find_jar("meteor/meteor-1.5.jar")


def paraphrases(language: str) -> Path:
    """Path of the paraphrase table; raises MissingError without pycocoevalcap."""
    return find_jar(f"meteor/data/paraphrase-{language}.gz")


def scorer_command(language: str, tables: Path, heap: str) -> list[str]:
    """Command line of a scorer of normalised texts, with the tables in a folder (see `meteor_tables`).

    `-norm` is normalise, then lower case; `-lower` is the latter alone.
    """
    folder = tables.resolve()
    options = ("-l", language, "-lower", "-a", folder / PARAPHRASES, "-d", folder)
    return java_command(f"-Xmx{heap}", "-jar", jar(), "-", "-", "-stdio", *options)


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
    command = java_command("-cp", jar(), "edu.cmu.meteor.util.Normalizer", language, "true")
    try:
        found = map_lines(command, distinct, silence)
        if len(found) != len(distinct):
            raise JavaError(f"{len(distinct):,} lines went in, {len(found):,} came out")
    except JavaError as error:
        raise JavaError(f"METEOR's normaliser fails: {error.what}", todo="Run it again.") from error
    normal = dict(zip(distinct, found, strict=True)) | {"": ""}
    return [normal[line] for line in lines]


def _one_line(text: str) -> str:
    # As pycocoevalcap does to the candidate; it leaves the references as they are, and fails if one holds `|||`.
    return text.replace("\r", " ").replace("\n", " ").replace("|||", "").replace("  ", " ").strip(" ")
