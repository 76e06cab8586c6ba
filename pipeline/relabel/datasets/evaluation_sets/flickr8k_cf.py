"""Flickr8k-CF: the share of crowd workers who say that a caption describes an image.

Hodosh, Young, Hockenmaier: "Framing Image Description as a Ranking Task", JAIR 2013.
"""

from __future__ import annotations

from collections.abc import Iterator

from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements
from relabel.datasets.evaluation_sets._flickr8k import DATASET, PAIR_IDS, rated_captions

JUDGEMENTS = "CrowdFlowerAnnotations.txt"


def _items(find: Find) -> Iterator[Item]:
    """Yield pairs with the share of yes, 0..1, which follows from the numbers of yes and of no."""
    return rated_captions(find, JUDGEMENTS, ("share of yes", "yes", "no"), ("share of yes",), own_captions=True)


SET = EvaluationSet(
    name="flickr8k-cf",
    title="Flickr8k-CF, image and caption: Kendall's tau-b with the share of crowd workers who say yes",
    dataset=DATASET,
    read=lambda find: judgements(_items(find)),
    statistics=("tau_b",),
    pair_ids=PAIR_IDS,
    unverified=(JUDGEMENTS,),
    protocol="Flickr8k-CF: an image stands for its five captions without the judged one.",
)
