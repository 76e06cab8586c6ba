"""SICK: relatedness, 1 to 5, of two sentences derived from captions of Flickr8k and of videos.

Marelli et al.: "A SICK cure for the evaluation of compositional distributional semantic models", LREC 2014.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relabel.datasets.evaluation_sets import EvaluationSet, Item, judgements
from relabel.datasets.evaluation_sets._tables import read_rows

TRAIN_FILE = "SICK_train.txt"
COLUMNS = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")


def _items(path: Path) -> Iterator[Item]:
    for _, row, score in read_rows(path, COLUMNS, ("relatedness_score",)):
        yield Item([(row["pair_ID"], [row["sentence_A"]], row["sentence_B"])], score)


def read_relatedness(path: Path) -> tuple[list[str], list[str], list[str], list[float]]:
    """Read the ids, the two lists of sentences, and the relatedness, 1 to 5, of the pairs of a split."""
    rows = [(*item.pairs[0], item.ratings[0]) for item in _items(path)]
    return [row[0] for row in rows], [row[1][0] for row in rows], [row[2] for row in rows], [row[3] for row in rows]


SET = EvaluationSet(
    name="sick",
    title="SICK test, sentence and sentence: correlation with human relatedness",
    dataset="sick",
    read=lambda find: judgements(_items(find("SICK_test_annotated.txt")), both_orders=True),
    statistics=("spearman", "pearson"),
    pair_ids="`pair_ID` of the file",
    protocol="SICK: the 4,927 pairs of the test split; scores of both orders are averaged.",
)
