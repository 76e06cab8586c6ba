"""SICK: relatedness, 1 to 5, of two sentences made from captions of Flickr8k and of videos.

Marelli et al.: "A SICK cure for the evaluation of compositional distributional semantic models", LREC 2014.
"""

from __future__ import annotations

import numpy as np

from relabel.datasets.judged import Find, JudgedSet, Judgements
from relabel.datasets.judged._columns import read_rows

FILE = "SICK_test_annotated.txt"
HEADER = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")


def read(find: Find) -> Judgements:
    """Read the 4,927 pairs of the test split."""
    path = find(FILE)
    ids, first, second, ratings = [], [], [], []
    for (pair, left, right, _, _), score in read_rows(path, HEADER, "relatedness_score"):
        ids.append(pair)
        ratings.append([score])
        first.append([left])
        second.append(right)
    return Judgements(
        ids=ids,
        references=first,
        candidates=second,
        both_orders=True,
        ratings=np.array(ratings),
        groups=["all"] * len(second),
        clusters=[str(number) for number in range(len(second))],
    )


SET = JudgedSet(
    name="sick",
    title="SICK test, sentence and sentence: correlation with human relatedness",
    dataset="sick",
    read=read,
    statistics=("spearman", "pearson"),
    pair_ids="`pair_ID` of the file",
    protocol="SICK: the 4,927 pairs of the test split, both orders averaged.",
)
