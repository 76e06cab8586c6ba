"""Visual STS: similarity of two captions, 0 to 5, judged with both images in sight.

Lopez de Lacalle, Salaberria, Soroa, Azkune, Agirre: "Evaluating Multimodal Representations on Visual Semantic Textual
Similarity", ECAI 2020.
"""

from __future__ import annotations

from relabel.datasets.judged import Find, JudgedSet, Judgements, rated_sentences
from relabel.datasets.judged._columns import read_rows

FILE = "visual_sts.v2.0.all.tsv"
HEADER = ("id", "source", "sent1", "image1", "sent2", "image2", "sim")


def read(find: Find) -> Judgements:
    """Read the 2,677 pairs of captions, grouped by their source: COCO, Flickr30K and STS's image captions."""
    path = find(FILE)
    ids, first, second, ratings, groups = [], [], [], [], []
    for (pair, source, left, _, right, _, _), score in read_rows(path, HEADER, "sim"):
        ids.append(pair)
        # Images are not read: a label has the captions alone, though people saw both images.
        ratings.append(score)
        first.append(left)
        second.append(right)
        groups.append(source)
    return rated_sentences(ids, first, second, ratings, groups)


SET = JudgedSet(
    name="vsts",
    title="Visual STS, caption and caption: correlation with human similarity",
    dataset="vsts",
    read=read,
    statistics=("pearson",),
    pair_ids="`id` of the file",
    protocol="Visual STS: two captions alone, both orders averaged; people saw both images. All 2,677 pairs; 110 of "
    "its COCO pairs show images of CxC's val split, on which a tuned label may have been fitted.",
)
