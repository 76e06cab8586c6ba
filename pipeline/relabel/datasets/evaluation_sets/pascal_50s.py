"""PASCAL-50S: choices of the one of two captions that is more similar to a reference caption, by 48 votes.

Vedantam, Zitnick, Parikh: "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015.
"""

from __future__ import annotations

from collections.abc import Iterator

from relabel.core.parsing import read_json
from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements

KINDS = ("HC", "HI", "HM", "MM")
"""Two correct human captions; a correct and an incorrect one; human and machine; two machines."""


def _items(find: Find) -> Iterator[Item]:
    """Yield the 4,000 choices between two captions."""
    body = read_json(find("pascal_50s.json"))
    for kind in KINDS:
        for number, entry in enumerate(body[kind]):
            pairs = [(f"{kind}:{number}:{k}", entry["references"], text) for k, text in enumerate(entry["captions"])]
            # `label` is the caption with the majority of the 48 votes. With one comparison per item, the accuracy is
            # the share of choices that agree with the majority.
            better = int(entry["label"])
            yield Item(pairs, better=[(better, 1 - better)], group=kind, cluster=entry["image"])


SET = EvaluationSet(
    name="pascal-50s",
    title="PASCAL-50S, better of two captions: accuracy by kind",
    dataset="pascal-50s",
    read=lambda find: judgements(_items(find)),
    ties=0.5,
    pair_ids="kind, item and caption, counted from 0: `HC:17:0`",
    protocol="PASCAL-50S: five references from one fixed draw; a tie counts as half. HC: two correct human "
    "captions; HI: a correct and an incorrect one; HM: human and machine; MM: two machines.",
)
