"""Predictions of the size and time of artefacts, from artefacts that this machine has built or from typical costs."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal, NamedTuple

from relabel.core.errors import CheckError, MissingError
from relabel.sources.typical_costs import ENCODE, FAISS, INGEST, LOOKUP, NEIGHBOURS, Cost, typical_cost
from relabel.stages.job import label_values, section_values
from relabel.stages.session import Session
from relabel.store.artefact import PARAMETERS
from relabel.store.manifest import MANIFEST, read_manifest

_TYPICAL = {"encode": ENCODE, "neighbours": NEIGHBOURS, "export": LOOKUP, "export faiss": FAISS}
"""Typical costs of the artefacts of each stage, by source."""
PREDICTED = frozenset({"ingest", *_TYPICAL})
"""Stages with predictions: their size and time depend on the number of captions."""
_FOLDERS = {
    "ingest": "*/corpus",
    "encode": "*/encodings/*/{}",
    "neighbours": "*/neighbours/*/captions/{}",
    "export": "*/exports/*/lookup/{}",
    "export faiss": "*/exports/*/faiss/{}",
}
"""Pattern of the folders of a label's artefacts in all datasets, for each stage."""
_ID_BYTES = 50  # size of the ids and offsets of a caption in a lookup
_START = {"encode": 5, "neighbours": 5}  # seconds to load models and compiled functions
_FEWEST = 5_000  # with fewer captions, start-up takes most of the time
Basis = Literal["measured here", "typical"]


class Prediction(NamedTuple):
    """Size in bytes and time in seconds, or None if unknown. `basis`: source of the time."""

    bytes: int | None = None
    seconds: float | None = None
    basis: Basis | None = None


def predict(session: Session, stage: str, label: str, rows: int) -> Prediction:
    """Predict the size and time of an artefact of `rows` captions. `stage`: one of `PREDICTED`."""
    params = session.config.neighbours
    typical = INGEST if stage == "ingest" else typical_cost(_TYPICAL[stage], session.config.params(label))
    size = None
    if typical is not None and typical.bytes is not None:
        # Each neighbour has a row number and a score, of 4 bytes each.
        lists = rows * 8 * max(0, min(params.k, rows - 1))
        more = {"neighbours": lists, "export": lists + rows * _ID_BYTES}.get(stage, 0)
        size = round(rows * typical.bytes) + more
    approximate = stage == "neighbours" and params.index is not None
    if (measured := _measured(session, stage, label)) is not None:
        captions, seconds = measured
        # Sources without a typical cost: any exact search compares all pairs.
        usual = NEIGHBOURS["sbert"] if stage == "neighbours" else Cost(1)
        cost = Cost(1) if approximate else typical or usual
        start = _START.get(stage, 0)
        growth = (start + cost.time(rows)) / (start + cost.time(captions))
        return Prediction(size, seconds * growth, "measured here")
    # The time of an approximate search depends on its index.
    if typical is None or approximate:
        return Prediction(size)
    return Prediction(size, typical.time(rows), "typical")


def _measured(session: Session, stage: str, label: str) -> tuple[int, float] | None:
    """Return the captions and seconds of a finished artefact with the same label, in any dataset, or None.

    The artefact with the most captions is used.
    """
    now = section_values(session.config, "neighbours") | section_values(session.config, "export.faiss")
    now |= {} if stage == "ingest" else label_values(session.config, label)
    measured = []
    for path in session.labels.glob(f"{_FOLDERS[stage].format(label)}/{MANIFEST}"):
        # Skip artefacts that are damaged or from another version.
        with suppress(MissingError, CheckError):
            manifest = read_manifest(path.parent)
            first, last = manifest.metadata["rows"]
            provenance = manifest.provenance
            alike = all(now.get(name, value) == value for name, value in provenance.get(PARAMETERS, {}).items())
            alike = alike and provenance["machine"]["cpus"] == os.cpu_count()
            # The time of resumed work does not include the interrupted run.
            if alike and last - first >= _FEWEST and not provenance.get("resumed", False):
                measured.append((last - first, provenance["seconds"]))
    return max(measured, default=None)
