"""Flickr8k-CF: the share of crowd workers who say that a caption describes an image.

Hodosh, Young, Hockenmaier: "Framing Image Description as a Ranking Task", JAIR 2013.
"""

from __future__ import annotations

from relabel.datasets.judged import Find, JudgedSet, Judgements, PublishedFigures
from relabel.datasets.judged._flickr8k import DATASET, PAIR_IDS, join, read_ratings

JUDGEMENTS = "CrowdFlowerAnnotations.txt"


def read(find: Find) -> Judgements:
    """Read pairs of an image and a caption with the share of yes, 0..1."""
    pairs = []
    for pair, captions in read_ratings(find, JUDGEMENTS):
        # The judged caption is no reference of itself.
        references = [text for name, text in captions.items() if name != pair.caption_id]
        # The columns are the share of yes, and the numbers of yes and of no from which it follows.
        pairs.append(pair._replace(references=references, ratings=pair.ratings[:1]))
    return join(pairs)


SET = JudgedSet(
    name="flickr8k-cf",
    title="Flickr8k-CF, image and caption: Kendall's tau-b with the share of crowd workers who say yes",
    dataset=DATASET,
    read=read,
    statistics=("tau_b",),
    pair_ids=PAIR_IDS,
    unverified=(JUDGEMENTS,),
    protocol="Flickr8k-CF: an image stands for its five captions without the judged one.",
    published=(
        PublishedFigures("CLIPScore (sees the image)", {"tau_b": 34.4}, "CLIPScore"),
        PublishedFigures("RefCLIPScore (sees the image)", {"tau_b": 36.4}, "CLIPScore"),
    ),
    papers={
        "CLIPScore": "Hessel et al., CLIPScore: A Reference-free Evaluation Metric for Image Captioning, EMNLP 2021, "
        "arXiv 2104.08718"
    },
)
