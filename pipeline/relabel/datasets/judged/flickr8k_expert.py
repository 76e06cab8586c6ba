"""Flickr8k-Expert: three experts rate if a caption describes an image, from 1 (unrelated) to 4 (describes it).

Hodosh, Young, Hockenmaier: "Framing Image Description as a Ranking Task", JAIR 2013.
"""

from __future__ import annotations

from relabel.datasets.judged import Find, JudgedSet, Judgements, PublishedFigures
from relabel.datasets.judged._flickr8k import DATASET, PAIR_IDS, join, read_ratings

JUDGEMENTS = "ExpertAnnotations.txt"


def read(find: Find) -> Judgements:
    """Read the 5,664 pairs of an image and another image's caption, three ratings each."""
    # 158 captions are the image's own. They are among its references, so the literature leaves them out.
    return join([pair for pair, captions in read_ratings(find, JUDGEMENTS) if pair.caption_id not in captions])


SET = JudgedSet(
    name="flickr8k-expert",
    title="Flickr8k-Expert, image and caption: Kendall's tau-c with three experts' ratings",
    dataset=DATASET,
    read=read,
    statistics=("tau_c",),
    pair_ids=PAIR_IDS,
    protocol="Flickr8k-Expert: an image stands for its five captions; the 158 pairs of an image and its own caption "
    "are left out; each of the three ratings counts by itself.",
    published=(
        PublishedFigures("BLEU-4", {"tau_c": 30.8}, "CLIPScore"),
        PublishedFigures("ROUGE-L", {"tau_c": 32.3}, "CLIPScore"),
        PublishedFigures("METEOR", {"tau_c": 41.8}, "CLIPScore"),
        PublishedFigures("CIDEr", {"tau_c": 43.9}, "CLIPScore"),
        PublishedFigures("SPICE", {"tau_c": 44.9}, "CLIPScore"),
        PublishedFigures("CLIPScore (sees the image)", {"tau_c": 51.2}, "CLIPScore"),
        PublishedFigures("RefCLIPScore (sees the image)", {"tau_c": 53.0}, "CLIPScore"),
    ),
    papers={
        "CLIPScore": "Hessel et al., CLIPScore: A Reference-free Evaluation Metric for Image Captioning, EMNLP 2021, "
        "arXiv 2104.08718, Table 1"
    },
)
