"""WordNet's synonym sets from METEOR's jar, used by METEOR and SPICE to match words."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from zipfile import ZipFile

from relabel.core.java import find_jar

_TABLES = ("english.synsets", "english.exceptions")
_ENDINGS = (
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ies", "y"), ("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e")),
    *(("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)  # rules of WordNet's morphology (ending, replacement), in METEOR's order


def find_meteor_jar() -> Path:
    """Return the path of the METEOR 1.5 jar inside pycocoevalcap. Raises MissingError if it is not installed."""
    return find_jar("meteor/meteor-1.5.jar")


@lru_cache(maxsize=1)
def read_wordnet(jar: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Read the synonym sets and the irregular inflections of English words.

    Returns `synsets`, the ids of the synonym sets of each word, and `bases`, the base forms of irregular inflections.
    """
    with ZipFile(jar) as file:
        synsets, exceptions = (file.read(f"synonym/{name}").decode().splitlines() for name in _TABLES)
    bases: dict[str, list[str]] = defaultdict(list)
    # Lines alternate between a base form and its irregular inflections.
    for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
        for form in forms.split():
            bases[form].append(base)
    return {word: sets.split() for word, sets in zip(synsets[::2], synsets[1::2], strict=True)}, bases


def find_synsets(word: str, synsets: dict[str, list[str]], bases: dict[str, list[str]]) -> set[str]:
    """Return the ids of the synonym sets of a lower-case word and of its base forms.

    Base forms are listed as exceptions, or derived from the word's ending. `synsets`, `bases`: from `read_wordnet`.
    """
    forms = (word, *(bases.get(word) or [find_base_form(word, synsets)]))
    return {each for form in forms for each in synsets.get(form, ())}


def find_base_form(word: str, words: dict[str, list[str]]) -> str:
    """Return the base form of a regularly inflected word by METEOR's rules, or "" if there is none.

    `word`: lower-case word. `words`: mapping with the existing base forms as keys.
    """
    # Words that end with -ss or have at most two letters are base forms.
    if word.endswith("ss") or len(word) <= 2:
        return word
    for ending, replacement in _ENDINGS:
        if word.endswith(ending) and (form := word.removesuffix(ending) + replacement) in words:
            return form
    return ""
