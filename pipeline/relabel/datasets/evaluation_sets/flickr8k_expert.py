"""Flickr8k-Expert: three experts rate if a caption describes an image, from 1 (unrelated) to 4 (describes it).

Hodosh, Young, Hockenmaier: "Framing Image Description as a Ranking Task", JAIR 2013.
"""

from __future__ import annotations

from collections.abc import Iterator

from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements
from relabel.datasets.evaluation_sets._flickr8k import CAPTIONS, DATASET, PAIR_IDS, rated_captions

EXPERTS = ("first", "second", "third")


def _items(find: Find) -> Iterator[Item]:
    """Yield the 5,664 pairs of an image and another image's caption, three ratings each."""
    # 158 captions are the image's own. They are among its references, so the literature leaves them out.
    return rated_captions(find(CAPTIONS), find("ExpertAnnotations.txt"), EXPERTS, EXPERTS, own_captions=False)


SET = EvaluationSet(
    name="flickr8k-expert",
    title="Flickr8k-Expert, image and caption: Kendall's tau-c with three experts' ratings",
    dataset=DATASET,
    read=lambda find: judgements(_items(find)),
    statistics=("tau_c",),
    pair_ids=PAIR_IDS,
    protocol="Flickr8k-Expert: an image stands for its five captions; the 158 pairs of an image and its own caption "
    "are left out; each of the three ratings counts by itself.",
)
