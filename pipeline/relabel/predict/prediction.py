"""Rows, bytes and seconds of one label's artefacts, from samples of two sizes that go the whole way.

Bytes are exact where a file's shape is fixed (vectors, a flat index, exact neighbours, a lookup of vectors), and about
right where they depend on the words (n-grams), whose number grows more slowly than that of the captions. Seconds of
encoding grow with the captions; those of a search with the powers of them that were seen from 40,000 to 616,767
captions (benchmarks/full_run.py).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from relabel import stages
from relabel.errors import UsageError
from relabel.neighbours.question import Question
from relabel.predict.sample import Ran, sampled
from relabel.predict.sizes import index_bytes, lookup_bytes, neighbours_bytes, npy_bytes, shards_bytes
from relabel.predict.timing import line, many_like, power, search_seconds
from relabel.sources.reuse import TEXTS, texts_bytes
from relabel.sources.vectors import INDEX, VectorRelevance
from relabel.stages.project import Project
from relabel_train.lookup.format import KINDS, read_description

_SAMPLES = {"vectors": (400, 2_400), "features": (6_000, 24_000)}  # captions; the larger show what one more takes
_SLOW = {"spice": (200, 800)}  # by source: fifty captions a second
_VECTORS = 40_000  # of a search among vectors that are made up
_GROWTH = {"vectors": 1.75, "features": 1.3}


@dataclass(frozen=True)
class Prediction:
    """What an artefact will take.

    Attributes
    ----------
    rows : int
    bytes : int
        Of its data files; its manifest, a few KB, is not counted.
    exact : bool
        Whether `bytes` is.
    seconds : float
    """

    rows: int
    bytes: int
    exact: bool
    seconds: float


@dataclass(frozen=True)
class _Sample:
    """What a label took over a few captions."""

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
    """Predict what a label that can be searched will take: `encode`, `neighbours` (of captions) and `export`.

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
    rows, kind = project.corpus.rows(project.splits(split)), project.config.source(label).kind
    if kind not in _SAMPLES:
        raise UsageError(f"what {label} takes depends on which pairs it scores: it says so when it begins")
    with ExitStack() as stack:
        sizes = _SLOW.get(project.config.source(label).name, _SAMPLES[kind])
        _, small, large = (
            _Sample.of(stack.enter_context(sampled(project, rows, n)), label, split)
            for n in (sizes[0] // 2, *sizes)  # the first pays for what is compiled and loaded once
        )
        return {
            "encode": _encoding(small, large, label, rows, project),
            "neighbours": _neighbours(large, label, rows, project),
            "export": _lookup(small, large, rows, project),
        }


def _encoding(small: _Sample, large: _Sample, label: str, rows: range, project: Project) -> Prediction:
    ran, count = large.encoding, len(rows)
    shards = shards_bytes(ran.folder / ran.manifest.parts[0], rows, project.config.encode.rows_per_shard)
    index: int | None = 0
    if INDEX in ran.manifest.files:
        index = index_bytes(getattr(project.config.params(label), "index", None), ran.manifest.facts["width"], count)
    known = shards is not None and index is not None
    texts = texts_bytes(count) if TEXTS in ran.manifest.files else 0
    if shards is not None and index is not None:
        size = shards + index + texts
    else:
        size = int(power((len(small), small.encoding.bytes), (len(large), ran.bytes), count))
    return Prediction(count, size, known, _line(small, large, count, "encoding"))


def _neighbours(large: _Sample, label: str, rows: range, project: Project) -> Prediction:
    params, pooling = project.config.neighbours, project.config.params(label).pooling
    question = Question(label, "captions", rows, params.k, pooling, project.config.encode.rows_per_shard)
    size = neighbours_bytes(project.corpus, question)
    return Prediction(len(rows), size, params.index is None, _searching(large, label, rows, project))


def _searching(large: _Sample, label: str, rows: range, project: Project) -> float:
    """Extend the seconds of a search."""
    k, runtime = project.config.neighbours.k, large.project.runtime
    opened = stages.open_label(large.project, label, large.split)
    if isinstance(opened, VectorRelevance):
        opened = many_like(opened, min(_VECTORS, len(rows)))
    count = len(opened.rows)
    search_seconds(opened, min(1000, count), k, runtime)  # compiles
    growth = _GROWTH[project.config.source(label).kind]
    return float(search_seconds(opened, count, k, runtime) * (len(rows) / count) ** growth)


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
    return Prediction(
        count, lookup_bytes(project.corpus, rows, own, width), exact, _line(small, large, count, "lookup")
    )


def _line(small: _Sample, large: _Sample, count: int, stage: str) -> float:
    first, second = ((len(s), getattr(s, stage).seconds) for s in (small, large))
    return line(first, second, count)
