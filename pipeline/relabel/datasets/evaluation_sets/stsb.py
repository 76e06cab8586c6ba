"""STS-B: similarity, 0 to 5, of two sentences from news, forums and captions.

Cer, Diab, Agirre, Lopez-Gazpio, Specia: "SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual
Focused Evaluation", SemEval 2017.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements
from relabel.datasets.evaluation_sets._tables import read_rows

FILES = {split: f"stsb-en-{split}.csv" for split in ("train", "dev", "test")}
"""File name of each split in the dataset `stsb`."""


class SentencePair(NamedTuple):
    """Two sentences, their human score 0..5, and the number of their first line in the file."""

    first: str
    second: str
    score: float
    line: int


def read_stsb(path: Path) -> list[SentencePair]:
    """Read a CSV file without header and with the columns sentence1, sentence2 and score."""
    rows = read_rows(path, ("sentence1", "sentence2", "score"), ("score",), separator=",")
    return [
        SentencePair(row["sentence1"], row["sentence2"], score, int(where.rpartition(":")[2]))
        for where, row, (score,) in rows
    ]


def _items(find: Find) -> Iterator[Item]:
    """Yield the 1,500 pairs of the dev split and the 1,379 of the test split, grouped by split.

    The main figure is that of the test split. Pairs of different splits are never ranked together.
    """
    for split in ("dev", "test"):
        for first, second, score, line in read_stsb(find(FILES[split])):
            yield Item([(f"{split}:{line}", [first], second)], [score], group=split)


SET = EvaluationSet(
    name="stsb",
    title="STS-B, sentence and sentence: correlation with human similarity",
    dataset="stsb",
    read=lambda find: judgements(_items(find), both_orders=True),
    statistics=("spearman", "pearson"),
    group="test",
    pair_ids="split and line of the file: `test:17`",
    protocol="STS-B: the 1,500 pairs of the dev split and the 1,379 of the test split; scores of both orders are "
    "averaged. Cer et al., SemEval-2017 Task 1.",
)
