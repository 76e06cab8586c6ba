"""SICK: relatedness, 1 to 5, of two sentences made from captions of Flickr8k and of videos.

Marelli et al.: "A SICK cure for the evaluation of compositional distributional semantic models", LREC 2014.
"""

from __future__ import annotations

from pathlib import Path

from relabel.datasets.judged import Find, JudgedSet, Judgements, rated_sentences
from relabel.datasets.judged._columns import read_rows

FILE = "SICK_test_annotated.txt"
TRAIN_FILE = "SICK_train.txt"
HEADER = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")


def read(find: Find) -> Judgements:
    """Read the 4,927 pairs of the test split."""
    ids, first, second, relatedness = read_relatedness(find(FILE))
    return rated_sentences(ids, first, second, relatedness, ["all"] * len(ids))


def read_relatedness(path: Path) -> tuple[list[str], list[str], list[str], list[float]]:
    """Read the ids, the sentences and the relatedness, 1 to 5, of the pairs of any split."""
    ids, first, second, relatedness = [], [], [], []
    for (pair, left, right, _, _), score in read_rows(path, HEADER, "relatedness_score"):
        ids.append(pair)
        first.append(left)
        second.append(right)
        relatedness.append(score)
    return ids, first, second, relatedness


SET = JudgedSet(
    name="sick",
    title="SICK test, sentence and sentence: correlation with human relatedness",
    dataset="sick",
    read=read,
    statistics=("spearman", "pearson"),
    pair_ids="`pair_ID` of the file",
    protocol="SICK: the 4,927 pairs of the test split, both orders averaged.",
)
