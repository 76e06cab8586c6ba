"""Flickr8k-Expert: ratings by three experts of how well a caption describes an image, 1 (unrelated) to 4.

Hodosh, Young, Hockenmaier: "Framing Image Description as a Ranking Task", JAIR 2013.
"""

from __future__ import annotations

from collections.abc import Iterator

from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements
from relabel.datasets.evaluation_sets._flickr8k import CAPTIONS, DATASET, PAIR_IDS, rated_captions

EXPERTS = ("first", "second", "third")


def _items(find: Find) -> Iterator[Item]:
    """Yield the 5,664 pairs of an image and another image's caption, with three ratings each."""
    # 158 pairs have a caption of the image itself. The literature excludes them, because it is also a reference.
    return rated_captions(find(CAPTIONS), find("ExpertAnnotations.txt"), EXPERTS, EXPERTS, own_captions=False)


SET = EvaluationSet(
    name="flickr8k-expert",
    title="Flickr8k-Expert, image and caption: Kendall's tau-c with three experts' ratings",
    dataset=DATASET,
    read=lambda find: judgements(_items(find)),
    statistics=("tau_c",),
    pair_ids=PAIR_IDS,
    protocol="Flickr8k-Expert: an image is represented by its five captions; the 158 pairs of an image and its own "
    "caption are excluded; the three ratings of a pair count separately.",
)
