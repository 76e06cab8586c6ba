"""Contract: every source works with every verb, or the command states in one line the reason and an alternative,
with exit code 2.
"""

from __future__ import annotations

import pytest
from tests.golden.today import Folder
from tests.golden.units import LABELS
from tests.golden.units import session as project_of_all_labels

from relabel.sources import SOURCES

pytestmark = pytest.mark.slow
# Verb to its command and the folder that it fills.
NEIGHBOURS = "neighbours --label LABEL --candidates val"
VERBS: dict[str, tuple[str, str]] = {
    "encode": ("encode --label LABEL --split val", "encodings/val/LABEL"),
    "neighbours of captions": (NEIGHBOURS, "neighbours/val/captions/LABEL"),
    "neighbours of images": (f"{NEIGHBOURS} --queries images", "neighbours/val/images/LABEL"),
    "export lookup": ("export lookup --label LABEL --split val", "exports/val/lookup/LABEL"),
    "correlate --cxc": ("correlate --cxc --label LABEL", "judgements/val/LABEL"),
}
PAIRS = "it scores pair by pair; use precomputed batches instead."
ALL_PAIRS = "it scores pair by pair, and there are too many pairs; set `gate`."
IDS = "it only uses image ids."
# Verb to label to what the one line says; every other cell works.
REFUSED: dict[str, dict[str, str]] = {
    "neighbours of captions": {"same_image": IDS, "meteor": ALL_PAIRS},
    "neighbours of images": {"same_image": IDS, "meteor": ALL_PAIRS},
    "export lookup": {"meteor": PAIRS, "bert_sts": PAIRS, "wmd": PAIRS},
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a project of a label of every source on 300 of COCO's captions."""
    assert {str(label["source"]) for label in LABELS.values()} == set(SOURCES)
    folder: Folder = project_of_all_labels(tmp_path_factory.mktemp("matrix"), "small")
    return folder


@pytest.mark.java
@pytest.mark.parametrize("label", LABELS)
def test_every_verb_works_or_states_the_reason(label: str, session: Folder) -> None:
    wrong = {}
    for verb, (command, made) in VERBS.items():
        result = session.relabel(*command.replace("LABEL", label).split())
        errors = [line for line in result.err.splitlines() if line.startswith("error:")]
        expected = REFUSED.get(verb, {}).get(label)
        if expected is None:
            manifest = session.path / "labels/coco" / made.replace("LABEL", label) / "manifest.json"
            right = result.code == 0 and not errors and manifest.exists()
        else:
            right = result.code == 2 and len(errors) == 1 and expected in errors[0]
        if not right:
            wrong[verb] = (expected or "works", result.code, result.err)
    assert wrong == {}
