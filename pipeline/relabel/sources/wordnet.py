"""WordNet's synonym sets, from the tables inside METEOR's jar; METEOR and SPICE both match words by them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from zipfile import ZipFile

from relabel.core.java import find_jar

SYNSETS, EXCEPTIONS = "english.synsets", "english.exceptions"
"""Names of the WordNet tables, in the jar and beside each other where METEOR is told to read them."""
_ENDINGS = (
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ies", "y"), ("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e")),
    *(("ing", ""), ("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)  # WordNet's morphology, in METEOR's order


def find_meteor_jar() -> Path:
    """Return the path of the METEOR 1.5 jar inside pycocoevalcap, or raise MissingError."""
    return find_jar("meteor/meteor-1.5.jar")


def read_wordnet(jar: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Read word -> synonym sets and inflected form -> base forms."""
    with ZipFile(jar) as file:
        synsets, exceptions = (file.read(f"synonym/{n}").decode().splitlines() for n in (SYNSETS, EXCEPTIONS))
    bases: dict[str, list[str]] = defaultdict(list)
    for base, forms in zip(exceptions[::2], exceptions[1::2], strict=True):
        for form in forms.split():
            bases[form].append(base)
    return {w: s.split() for w, s in zip(synsets[::2], synsets[1::2], strict=True)}, bases


def find_base_form(word: str, known: dict[str, list[str]]) -> str:
    """Base form of a word by its ending, as METEOR finds it; empty if it finds none."""
    if word.endswith("ss") or len(word) <= 2:
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and (form := word.removesuffix(ending) + instead) in known:
            return form
    return ""
