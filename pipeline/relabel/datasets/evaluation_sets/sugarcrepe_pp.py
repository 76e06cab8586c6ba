"""SugarCrepe++: triples of two captions with the same meaning, and one with similar words but another meaning.

Dumpala et al.: "SUGARCREPE++ Dataset: Vision-Language Model Sensitivity to Semantic and Lexical Alterations", NeurIPS
2024 (datasets and benchmarks).
"""

from __future__ import annotations

from collections.abc import Iterator

from relabel.core.parsing import read_json
from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements

KINDS = {
    "replace_obj": "replace object",
    "replace_rel": "replace relation",
    "replace_att": "replace attribute",
    "swap_att": "swap attribute",
    "swap_obj": "swap object",
}
"""Kind of alteration by file."""


def _items(find: Find) -> Iterator[Item]:
    """Yield the 4,757 triples. Each has three pairs: the two positives, and each positive with the negative."""
    for file, kind in KINDS.items():
        for entry in read_json(find(f"{file}.json")):
            first, second, negative = (entry[key] for key in ("caption", "caption2", "negative_caption"))
            texts = {"positives": (first, second), "caption": (first, negative), "caption2": (second, negative)}
            pairs = [(f"{file}:{entry['id']}:{key}", [one], other) for key, (one, other) in texts.items()]
            # A triple is correct if the positives are more similar to each other than each is to the negative.
            # Triples of one image are resampled together.
            yield Item(pairs, better=[(0, 1), (0, 2)], group=kind, cluster=entry["filename"])


SET = EvaluationSet(
    name="sugarcrepe-pp",
    title="SugarCrepe++, triples of captions: accuracy by kind, chance 33",
    dataset="sugarcrepe-pp",
    read=lambda find: judgements(_items(find), both_orders=True),
    pair_ids="file, `id` and pair (positives; caption or caption2, each with the negative): `swap_att:17:positives`",
    protocol="SugarCrepe++: a triple is correct if the two captions with the same meaning are more similar to each "
    "other than to the third; scores of both orders are averaged. 176 of the 1,542 images are in CxC's val split, and "
    "tuned labels may have been fitted on them.",
)
