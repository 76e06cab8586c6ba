"""Sentence pairs with human scores that `tune sbert` learns from beside CxC: the train splits of STS-B and SICK.

Neither holds a caption of COCO. STS-B's caption pairs come from Flickr30K, and SICK's sentences from Flickr8K, so a
model that learned from them has seen texts of these datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import MissingError
from relabel.core.runtime import Runtime
from relabel.datasets import fetch, locate
from relabel.datasets.judged.sick import TRAIN_FILE, read_relatedness
from relabel.datasets.stsb import FILES, read_stsb
from relabel.store.atomic import sha256_file

SentenceSetName = Literal["stsb", "sick"]
_FILE: dict[SentenceSetName, str] = {"stsb": FILES["train"], "sick": TRAIN_FILE}


@dataclass(frozen=True, eq=False)
class SentenceSet:
    """P sentence pairs with human scores.

    Attributes
    ----------
    name : str
    first, second : list of str, length P
    score : (P,) float64
        Human scores, 0..1.
    sha256 : str
        sha256 of the file.
    """

    name: SentenceSetName
    first: list[str]
    second: list[str]
    score: NDArray[np.float64]
    sha256: str


def read_sentence_sets(names: Sequence[SentenceSetName], runtime: Runtime) -> list[SentenceSet]:
    """Read the train splits of some sets, after fetching the files that are missing.

    Raises
    ------
    MissingError
        If a file is neither on this machine nor to be fetched.
    CheckError
        If a file is not of the published form. The message names file and line.
    """
    return [_read(name, _find(name, runtime)) for name in names]


def _find(name: SentenceSetName, runtime: Runtime) -> Path:
    """Return the file of a set, fetched if it is missing."""
    try:
        # A file in a mirror or an installed package needs no download.
        return locate(name, _FILE[name], runtime.data)
    except MissingError:
        fetch(name, runtime.data, None, runtime.progress, [_FILE[name]])
    return locate(name, _FILE[name], runtime.data)


def _read(name: SentenceSetName, path: Path) -> SentenceSet:
    """Read the file of a set, with scores mapped to 0..1."""
    if name == "stsb":
        # STS-B rates from 0 to 5 and SICK from 1 to 5. One loss takes both, from 0 to 1.
        pairs = read_stsb(path)
        first, second = [p.first for p in pairs], [p.second for p in pairs]
        score = np.array([p.score for p in pairs]) / 5
    else:
        _, first, second, relatedness = read_relatedness(path)
        score = (np.array(relatedness) - 1) / 4
    return SentenceSet(name, first, second, score, sha256_file(path))
