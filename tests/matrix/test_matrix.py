"""Contract: every source works with every verb, or the command states in one line the reason and an alternative,
with exit code 2.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.matrix.conftest import CHEAP
from tests.matrix.projects import SOURCES, Folder, Result

VERBS: dict[str, tuple[str, ...]] = {
    "encode": ("encode", "--label", "LABEL", "--split", "val"),
    "neighbours of captions": ("neighbours", "--label", "LABEL", "--candidates", "val", "--queries", "captions"),
    "neighbours of images": ("neighbours", "--label", "LABEL", "--candidates", "val", "--queries", "images"),
    "export lookup": ("export", "lookup", "--label", "LABEL", "--split", "val"),
    "correlate --cxc": ("correlate", "--cxc", "--label", "LABEL"),
}
MADE: dict[str, str] = {
    "encode": "coco/encodings/val/LABEL",
    "neighbours of captions": "coco/neighbours/val/captions/LABEL",
    "neighbours of images": "coco/neighbours/val/images/LABEL",
    "export lookup": "coco/exports/val/lookup/LABEL",
    "correlate --cxc": "coco/judgements/val/LABEL",
}
"""Folder that a verb fills."""

PAIRS = "it scores pair by pair; precomputed batches have its labels."
ALL_PAIRS = "it scores pair by pair, and all pairs are too many."
IDS = "it knows image ids alone."

REFUSED: dict[str, dict[str, str]] = {
    "neighbours of captions": {"same_image": IDS, "meteor": ALL_PAIRS},
    "neighbours of images": {"same_image": IDS, "meteor": ALL_PAIRS},
    "export lookup": {"meteor": PAIRS, "bert_sts": PAIRS, "wmd": PAIRS},
}
"""Verb to label to what the one line says; every other cell works."""


def marked(label: str) -> Any:
    """Return a label as a parameter of the slow tests, with the marker of Java if it needs Java."""
    marks = [pytest.mark.slow, pytest.mark.java] if label in ("cider", "meteor") else [pytest.mark.slow]
    return pytest.param(label, marks=marks)


LABELS = [label if label in CHEAP else marked(label) for label in SOURCES]


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_every_verb_works_or_states_the_reason(label: str, project: Folder) -> None:
    wrong = {}
    for verb, arguments in VERBS.items():
        result = project.relabel(*(a.replace("LABEL", label) for a in arguments))
        expected = REFUSED.get(verb, {}).get(label)
        if not (works(project, verb, label, result) if expected is None else refuses(result, expected, label)):
            wrong[verb] = (expected or "works", result.code, result.errors or result.err)
    assert wrong == {}


def works(project: Folder, verb: str, label: str, result: Result) -> bool:
    """Return whether a command succeeded and wrote its artefact."""
    manifest = project.path / "labels" / MADE[verb].replace("LABEL", label) / "manifest.json"
    return result.code == 0 and not result.errors and manifest.exists()


def refuses(result: Result, expected: str, label: str) -> bool:
    """Return whether a command ended in one line with a reason."""
    return result.code == 2 and len(result.errors) == 1 and expected.replace("LABEL", label) in result.errors[0]


def test_nearest_excludes_labels_without_texts(cheap: Folder) -> None:
    result = cheap.relabel("nearest", "two dogs on a beach", "--split", "val")
    assert result.code == 0
    assert "cider_lower_split" in result.out
    assert "vectors" not in result.out
    assert "vectors is left out: precomputed has no scores of new texts: given vectors have no model" in result.err


def test_the_table_covers_every_source() -> None:
    from relabel.sources import SOURCES as KNOWN

    assert {params["source"] for params in SOURCES.values()} == set(KNOWN)
    assert {label for refused in REFUSED.values() for label in refused} <= set(SOURCES)
    assert set(REFUSED) <= set(VERBS)
