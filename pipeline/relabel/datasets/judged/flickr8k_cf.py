"""Flickr8k-CF: the share of crowd workers who say that a caption describes an image.

Hodosh, Young, Hockenmaier: "Framing Image Description as a Ranking Task", JAIR 2013.
"""

from __future__ import annotations

import numpy as np

from relabel.datasets.judged import Find, JudgedSet, Judgements
from relabel.datasets.judged._flickr8k import CAPTIONS, DATASET, read_captions, read_judgements, text_of

JUDGEMENTS = "CrowdFlowerAnnotations.txt"


def read(find: Find) -> Judgements:
    """Read pairs of an image and a caption with the share of yes, 0..1."""
    captions = read_captions(find(CAPTIONS))
    references, candidates, ratings, images = [], [], [], []
    for image, caption, values, where in read_judgements(find(JUDGEMENTS), 3):
        text = text_of(captions, caption, where)
        # The judged caption is no reference of its own.
        others = [other for name, other in captions[image].items() if name != caption]
        references.append(others)
        candidates.append(text)
        ratings.append(values[:1])
        images.append(image)
    return Judgements(
        references=references, candidates=candidates, ratings=np.array(ratings), groups=["all"] * len(images),
        clusters=images,
    )  # fmt: skip


SET = JudgedSet(
    name="flickr8k-cf",
    title="Flickr8k-CF, image and caption: Kendall's tau-b with the share of crowd workers who say yes",
    dataset=DATASET,
    read=read,
    statistics=("tau_b",),
    unverified=(JUDGEMENTS,),
    protocol="Flickr8k-CF: an image stands for its five captions without the judged one.",
)
