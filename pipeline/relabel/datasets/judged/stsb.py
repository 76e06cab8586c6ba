"""STS-B: similarity, 0 to 5, of two sentences from news, forums and captions.

Cer, Diab, Agirre, Lopez-Gazpio, Specia: "SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual
Focused Evaluation", SemEval 2017.
"""

from __future__ import annotations

import numpy as np

from relabel.datasets.judged import Find, JudgedSet, Judgements
from relabel.datasets.stsb import FILES, read_stsb

SPLITS = ("dev", "test")


def read(find: Find) -> Judgements:
    """Read the 1,500 pairs of the dev split and the 1,379 of the test split; a pair's group is its split."""
    splits = {split: read_stsb(find(FILES[split])) for split in SPLITS}
    pairs = [pair for each in splits.values() for pair in each]
    return Judgements(
        ids=[f"{split}:{pair.line}" for split, each in splits.items() for pair in each],
        references=[[pair.first] for pair in pairs],
        candidates=[pair.second for pair in pairs],
        both_orders=True,
        ratings=np.array([[pair.score] for pair in pairs]),
        # A group per split: the test split stands for the set, and pairs of two splits are never ranked together.
        groups=[split for split, each in splits.items() for _ in each],
        clusters=[str(number) for number in range(len(pairs))],
    )


SET = JudgedSet(
    name="stsb",
    title="STS-B, sentence and sentence: correlation with human similarity",
    dataset="stsb",
    read=read,
    statistics=("spearman", "pearson"),
    group="test",
    pair_ids="split and line of the file: `test:17`",
    protocol="STS-B: the 1,500 pairs of the dev split and the 1,379 of the test split, both orders averaged. Cer et "
    "al., SemEval-2017 Task 1.",
)
