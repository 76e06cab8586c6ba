"""Rows, bytes and seconds of one label's artefacts, from samples of two sizes that go the whole way.

Bytes are exact where a file's shape is fixed (vectors, a flat index, exact neighbours, a lookup of vectors), and about
right where they depend on the words (n-grams). Seconds of encoding grow with the captions, those of a search with
their square.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from relabel import stages
from relabel.neighbours.question import Question
from relabel.predict.sample import Ran, sampled
from relabel.predict.sizes import index_bytes, lookup_bytes, neighbours_bytes, npy_bytes, shards_bytes
from relabel.predict.timing import line, many_like, parabola, search_seconds
from relabel.sources.reuse import TEXTS, texts_bytes
from relabel.sources.vectors import INDEX, VectorRelevance
from relabel.stages.project import Project
from relabel_train.lookup.format import KINDS, read_description

_TEXTS = (400, 2_400)  # captions of the samples: what a text takes shows beside what a model takes to load
_VECTORS, _FEATURES = (8_000, 40_000), (6_000, 24_000)  # captions of the searches


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
    rows = project.corpus.rows(project.splits(split))
    with ExitStack() as stack:
        small, large = (_Sample.of(stack.enter_context(sampled(project, rows, n)), label, split) for n in _TEXTS)
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
        index = index_bytes(getattr(project.config.sources[label], "index", None), ran.manifest.facts["width"], count)
    known = shards is not None and index is not None
    texts = texts_bytes(count) if TEXTS in ran.manifest.files else 0
    size = shards + index + texts if shards is not None and index is not None else ran.bytes * count // len(large)
    return Prediction(count, size, known, _line(small, large, count, "encoding"))


def _neighbours(large: _Sample, label: str, rows: range, project: Project) -> Prediction:
    params, pooling = project.config.neighbours, project.config.sources[label].pooling
    question = Question(label, "captions", rows, params.k, pooling, project.config.encode.rows_per_shard)
    size = neighbours_bytes(project.corpus, question)
    return Prediction(len(rows), size, params.index is None, _searching(large, label, rows, project))


def _searching(large: _Sample, label: str, rows: range, project: Project) -> float:
    """Extend the seconds of two searches."""
    k, runtime = project.config.neighbours.k, large.project.runtime
    opened = stages.open_label(large.project, label, large.split)
    with ExitStack() as stack:
        if isinstance(opened, VectorRelevance):
            sizes = min(_VECTORS[0], len(rows)), min(_VECTORS[1], len(rows))
            opened = many_like(opened, sizes[1])
        else:
            more = stack.enter_context(sampled(project, rows, _FEATURES[1]))
            stages.encode(more, label, large.split).run()
            opened = stages.open_label(more, label, large.split)
            sizes = min(_FEATURES[0], len(opened.rows)), len(opened.rows)
        search_seconds(opened, min(1000, sizes[0]), k, runtime)  # compiles
        first, second = ((n, search_seconds(opened, n, k, runtime)) for n in sizes)
        return parabola(first, second, len(rows))


def _lookup(small: _Sample, large: _Sample, rows: range, project: Project) -> Prediction:
    n, count = len(large), len(rows)
    about = read_description(large.lookup.folder)
    own, exact = 0, True
    for name in KINDS[about.kind]:
        length, *rest = about.arrays[name].shape
        fixed = length in (n, n + 1)
        exact = exact and fixed
        length = length - n + count if fixed else length * count // n
        own += npy_bytes(about.arrays[name].dtype, (length, *rest))
    width = min(project.config.neighbours.k, count - 1)
    return Prediction(
        count, lookup_bytes(project.corpus, rows, own, width), exact, _line(small, large, count, "lookup")
    )


def _line(small: _Sample, large: _Sample, count: int, stage: str) -> float:
    first, second = ((len(s), getattr(s, stage).seconds) for s in (small, large))
    return line(first, second, count)
