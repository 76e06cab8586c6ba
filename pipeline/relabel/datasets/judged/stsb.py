"""STS-B: similarity, 0 to 5, of two sentences from news, forums and captions.

Cer, Diab, Agirre, Lopez-Gazpio, Specia: "SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual
Focused Evaluation", SemEval 2017.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from relabel.core.errors import CheckError
from relabel.core.parsing import read_text
from relabel.datasets.judged import Find, JudgedSet, Judgements, rated_sentences

FILES = {split: f"stsb-en-{split}.csv" for split in ("train", "dev", "test")}
"""File of each split, as `relabel fetch stsb` names it."""
_FIELDS = ("sentence1", "sentence2", "score")


class SentencePair(NamedTuple):
    """Two sentences, their human score 0..5, and their line in the file."""

    first: str
    second: str
    score: float
    line: int


def read_stsb(path: Path) -> list[SentencePair]:
    """Read a CSV file without header: sentence1, sentence2, score."""
    pairs: list[SentencePair] = []
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    # A quoted sentence may span lines. `line_num` is the last line of a row, so a row begins after the end of the one
    # before.
    end = 0
    try:
        for row in reader:
            pairs.append(_pair(row, f"{path}:{end + 1}", end + 1))
            end = reader.line_num
    except csv.Error as error:
        raise CheckError(f"not csv: {error}", where=f"{path}:{reader.line_num}") from error
    if not pairs:
        raise CheckError("no sentence pairs", where=str(path))
    return pairs


def _pair(row: list[str], where: str, line: int) -> SentencePair:
    if len(row) != len(_FIELDS):
        raise CheckError(f"expected {', '.join(_FIELDS)}; found {len(row)} fields", where=where)
    first, second, text = row
    if not (first.strip() and second.strip()):
        raise CheckError("an empty sentence", where=where)
    # NaN is outside 0 to 5, so no number and a wrong number have one message.
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not 0 <= score <= 5:
        raise CheckError(f"expected a score from 0 to 5, found {text!r}", where=where)
    return SentencePair(first, second, score, line)


SPLITS = ("dev", "test")


def read(find: Find) -> Judgements:
    """Read the 1,500 pairs of the dev split and the 1,379 of the test split; a pair's group is its split."""
    pairs = [(split, pair) for split in SPLITS for pair in read_stsb(find(FILES[split]))]
    first, second, scores, lines = zip(*(pair for _, pair in pairs), strict=True)
    # A group per split: the test split stands for the set, and pairs of two splits are never ranked together.
    groups = [split for split, _ in pairs]
    ids = [f"{split}:{line}" for split, line in zip(groups, lines, strict=True)]
    return rated_sentences(ids, list(first), list(second), list(scores), groups)


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
