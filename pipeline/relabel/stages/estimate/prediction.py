"""Rows and bytes of one label's artefacts, from samples of two sizes that are encoded and exported.

Bytes are exact where the shape of a file is fixed: vectors, a flat index, exact neighbours, a lookup of vectors. They
are approximate where they depend on the words (n-grams, tuples), whose number grows more slowly than the captions.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass

from relabel import stages
from relabel.core.errors import UsageError
from relabel.neighbours.spec import Question
from relabel.sources.cosine import INDEX
from relabel.sources.text_reuse import TEXTS, text_digest_bytes
from relabel.stages.estimate.sample import Ran, sampled
from relabel.stages.estimate.sizes import index_bytes, lookup_bytes, neighbours_bytes, npy_bytes, shards_bytes
from relabel.stages.project import Project
from relabel_train.lookup.format import KINDS, read_description


@dataclass(frozen=True)
class Prediction:
    """Size of an artefact that is not built yet.

    Attributes
    ----------
    rows : int
    bytes : int
        Size of its data files, without the manifest of a few KB.
    exact : bool
        Whether `bytes` is exact.
    """

    rows: int
    bytes: int
    exact: bool


@dataclass(frozen=True)
class _Sample:
    """Encoding and lookup of a label over a few captions."""

    project: Project
    split: str
    encoding: Ran
    lookup: Ran

    @classmethod
    def of(cls, project: Project, label: str, split: str) -> _Sample:
        encoding = Ran.of(stages.encode(project, label, split))
        return cls(project, split, encoding, Ran.of(stages.export_lookup(project, label, split)))

    def __len__(self) -> int:
        return len(self.project.corpus)


def predict(project: Project, label: str, split: str) -> dict[str, Prediction]:
    """Predict the rows and bytes of a label: `encode`, `neighbours` (of captions) and `export`.

    Parameters
    ----------
    project : Project
        Its corpus is there.
    label, split : str

    Returns
    -------
    dict of stage to Prediction

    Raises
    ------
    RelabelError
        Whatever keeps the label from being encoded.
    """
    rows, sizes = project.corpus.rows(project.splits(split)), project.config.source(label).spec.sample_sizes
    if sizes is None:
        raise UsageError(f"what {label} takes depends on which pairs it scores: it says so when it begins")
    with ExitStack() as stack:
        small, large = (_Sample.of(stack.enter_context(sampled(project, rows, n)), label, split) for n in sizes)
        return {
            "encode": _encoding(small, large, rows, project),
            "neighbours": _neighbours(label, rows, project),
            "export": _lookup(small, large, rows, project),
        }


def _encoding(small: _Sample, large: _Sample, rows: range, project: Project) -> Prediction:
    ran, count = large.encoding, len(rows)
    shards = shards_bytes(ran.folder / ran.manifest.parts[0], rows, project.config.encode.rows_per_shard)
    index: int | None = 0
    if INDEX in ran.manifest.files:
        index = index_bytes(ran.manifest.semantic["index"], ran.manifest.facts["width"], count)
    known = shards is not None and index is not None
    texts = text_digest_bytes(count) if TEXTS in ran.manifest.files else 0
    if shards is not None and index is not None:
        size = shards + index + texts
    else:
        size = int(power((len(small), small.encoding.bytes), (len(large), ran.bytes), count))
    return Prediction(count, size, known)


def _neighbours(label: str, rows: range, project: Project) -> Prediction:
    params, pooling = project.config.neighbours, project.config.params(label).pooling
    question = Question(label, "captions", rows, params.k, pooling, project.config.encode.rows_per_shard)
    size = neighbours_bytes(project.corpus, question)
    return Prediction(len(rows), size, params.index is None)


def _lookup(small: _Sample, large: _Sample, rows: range, project: Project) -> Prediction:
    n, count = len(large), len(rows)
    about = read_description(large.lookup.folder)
    own, exact = 0, True
    for name in KINDS[about.kind]:
        length, *rest = about.arrays[name].shape
        fixed = length in (n, n + 1)
        exact = exact and fixed
        first = read_description(small.lookup.folder).arrays[name].shape[0]
        length = length - n + count if fixed else int(power((len(small), first), (n, length), count))
        own += npy_bytes(about.arrays[name].dtype, (length, *rest))
    width = min(project.config.neighbours.k, count - 1)
    return Prediction(count, lookup_bytes(project.corpus, rows, own, width), exact)


def power(small: tuple[int, float], large: tuple[int, float], count: int) -> float:
    """Extrapolate a quantity that grows with a power of the count, at most linearly, from two measurements."""
    if large[0] <= small[0] or not 0 < small[1] < large[1]:
        return large[1] * count / large[0]
    exponent = min(1.0, math.log(large[1] / small[1]) / math.log(large[0] / small[0]))
    return float(large[1] * (count / large[0]) ** exponent)
