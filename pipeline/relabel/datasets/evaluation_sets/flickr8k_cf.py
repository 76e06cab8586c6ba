"""Flickr8k-CF: share of crowd workers who say that a caption describes an image.

Hodosh, Young, Hockenmaier: "Framing Image Description as a Ranking Task", JAIR 2013.
"""

from __future__ import annotations

from collections.abc import Iterator

from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements
from relabel.datasets.evaluation_sets._flickr8k import CAPTIONS, DATASET, PAIR_IDS, rated_captions
from relabel.datasets.evaluation_sets._hub import ROW_IDS, rated_rows


def _items(find: Find) -> Iterator[Item]:
    """Yield pairs with the share of yes votes, 0..1, from the authors' file or the hub's file."""
    file = find()
    if file.suffix != ".txt":
        return rated_rows(file)
    # The numbers of yes and no votes are not needed, because the share is derived from them.
    columns = ("share of yes", "yes", "no")
    return rated_captions(find(CAPTIONS, DATASET), file, columns, columns[:1], own_captions=True)


SET = EvaluationSet(
    name="flickr8k-cf",
    title="Flickr8k-CF, image and caption: Kendall's tau-b with the share of crowd workers who say yes",
    dataset="flickr8k-cf",
    read=lambda find: judgements(_items(find)),
    statistics=("tau_b",),
    pair_ids=f"{PAIR_IDS}; in the hub's file, {ROW_IDS}",
    protocol="Flickr8k-CF: an image is represented by those of its five captions that were not judged with it.",
)
