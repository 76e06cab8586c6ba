"""Typical time and size of artefacts, measured with default parameters on 2 cores of an AMD EPYC, usually on COCO."""

from __future__ import annotations

from typing import NamedTuple

from relabel.sources.base import SourceParams


class Cost(NamedTuple):
    """Cost of an artefact.

    `seconds`: seconds per 1,000 captions, or per 1,000 pairs for precomputed batches. `bytes`: bytes per caption; None
    if not measured. Ids and neighbours of lookups are not included. `seconds_of_pairs`: seconds per million pairs.
    """

    seconds: float
    bytes: float | None = None
    seconds_of_pairs: float = 0

    def time(self, captions: int) -> float:
        """Return the time of an artefact in seconds."""
        thousands = captions / 1000
        return self.seconds * thousands + self.seconds_of_pairs * thousands**2


INGEST = Cost(0.017, 33)
ENCODE = {
    "same_image": Cost(0, 0),
    "cbow": Cost(0.104, 409),
    "cider": Cost(0.028, 197),
    "meteor": Cost(0.2, 87),
    "sbert": Cost(0.986, 1_565),
    "spice": Cost(31.6, 65),
}
# COCO's 25,010 test captions took 12 s (sbert) and 7 s (cider), all 616,767 captions 528 s and 252 s.
NEIGHBOURS = {"cider": Cost(0.187, 0, 3.5e-4), "sbert": Cost(0.12, 0, 1.2e-3)}
LOOKUP = {"cbow": Cost(0.008, 400), "cider": Cost(0.023, 678), "sbert": Cost(0.019, 1_536)}
FAISS = {"cbow": Cost(0.008, 416), "sbert": Cost(0.019, 1_552)}
PLAN = {"cbow": Cost(0.001), "cider": Cost(0.001), "sbert": Cost(0.001), "meteor": Cost(0.01), "bert_sts": Cost(3.5)}

_MEASURED_AT_DEFAULT = ("model", "vectors")  # parameters on which the cost depends
_SAME_COST = ("word2vec",)  # the default width of GloVe is that of word2vec


def typical_cost(table: dict[str, Cost], params: SourceParams) -> Cost | None:
    """Return the cost of a label's artefact, or None if the source was not measured with this model."""
    fields = type(params).model_fields
    for name in _MEASURED_AT_DEFAULT:
        if name in fields and getattr(params, name) not in (fields[name].default, *_SAME_COST):
            return None
    return table.get(params.source)
