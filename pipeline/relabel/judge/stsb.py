"""Agreement of a source with STS-B's human scores, and its table.

Only `correlate --stsb` uses it; no label depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np

from relabel.core.numeric.statistics import pearson, round_relative, spearman
from relabel.core.runtime import Runtime
from relabel.core.tables import Table
from relabel.core.types import Pooling, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.datasets import locate
from relabel.datasets.stsb import FILES, SentencePair, read_stsb
from relabel.judge.report import UNDEFINED, Report
from relabel.sources.base import OpenEncoding, Source
from relabel.sources.relevance import Relevance
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, Manifest
from relabel.store.tasks import make_all
from relabel.store.workdir import Work

SPLITS = ("dev", "test")
_ROWS_PER_SHARD = 50_000
_NOTE = (
    "Each sentence stands for an image of its own; both orders averaged where a label is not symmetric. Cer et al., "
    "SemEval-2017 Task 1."
)


@dataclass(frozen=True)
class StsbScore:
    """Agreement of a source with human scores over n pairs; coefficients are -1..1, None where undefined."""

    split: str
    n: int
    pearson: float | None
    spearman: float | None


def judge_stsb(
    source: Source[Any],
    data: Path,
    folder: Path,
    runtime: Runtime,
    splits: Sequence[str] = SPLITS,
    parts: Mapping[str, Source[Any]] = MappingProxyType({}),
) -> list[StsbScore]:
    """Score the pairs of STS-B with a source and correlate the scores with human ones.

    Each sentence stands for an image of its own, so a source with document frequencies counts it as one document. The
    score of a pair is the mean of r(a, b) and r(b, a) where the source is not symmetric.

    Parameters
    ----------
    source : Source
    data : Path
        Folder of fetched files, or a folder that holds the CSV files themselves.
    folder : Path
        Parent of the temporary encoding.
    runtime : Runtime
    splits : sequence of str
        Some of train, dev and test.
    parts : mapping of str to Source
        The labels that the source is made of or gated by, and the labels of those.

    Raises
    ------
    MissingError
        If a file is missing, or something that the source needs.
    CheckError
        If a row is not two sentences and a score. The message names file and line.
    """
    scores = []
    for split in splits:
        beside = data / FILES[split]
        pairs = read_stsb(beside if beside.is_file() else locate("stsb", FILES[split], data))
        relevance = round_relative(_relevance(source, split, pairs, folder, runtime, parts))
        human = np.array([p.score for p in pairs])
        scores.append(StsbScore(split, len(pairs), pearson(relevance, human), spearman(relevance, human)))
    return scores


def stsb_report(scores: Mapping[str, Sequence[StsbScore]]) -> Report:
    """Lay out the agreement of labels with STS-B's human scores.

    Parameters
    ----------
    scores : mapping of str to sequence of StsbScore
        Scores of each label, one per split.
    """
    rows = []
    records = []
    for label, label_scores in scores.items():
        by = {score.split: score for score in label_scores}
        cells = [_cell(value) for split in SPLITS for value in (by[split].pearson, by[split].spearman)]
        rows.append((label, *cells))
        for score in label_scores:
            figures = {"n": score.n, "pearson": score.pearson, "spearman": score.spearman}
            records.append({"label": label, "task": "stsb", "split": score.split, "subset": score.split, **figures})
    counts = ", ".join(f"{s.n:,} {s.split} pairs" for s in next(iter(scores.values()), ()))
    header = ("label", *(f"{split} {name}" for split in SPLITS for name in ("Pearson", "Spearman")))
    table = Table(f"STS-B: correlation with human scores, {counts}", header, tuple(rows), (_NOTE,))
    return Report((table,), tuple(records))


def _cell(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"


def _relevance(
    source: Source[Any],
    split: str,
    pairs: list[SentencePair],
    folder: Path,
    runtime: Runtime,
    parts: Mapping[str, Source[Any]],
) -> Scores:
    """Return the source's relevance of each pair, (P,) float64."""
    corpus = _corpus(split, pairs)
    if "ptb" in {one.tokenizer() for one in (source, *parts.values())}:
        from relabel.corpus.tokenizers import tokenize

        corpus = corpus.with_tokens(tokenize(corpus.texts, runtime))
    first, second = (np.arange(k, len(corpus), 2, dtype=np.int32) for k in (0, 1))
    pooling: Pooling = "refs" if "paired" in source.spec.refused_poolings else "paired"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="stsb-", dir=folder) as temporary:
        relevance = _opened(source, "label", corpus, Path(temporary), runtime, parts)[1]
        scores: Scores = relevance.pairs(References.single(first), second, pooling)
        if not source.spec.symmetric:
            scores = (scores + relevance.pairs(References.single(second), first, pooling)) / 2
    return scores


def _opened(
    source: Source[Any], name: str, corpus: Corpus, folder: Path, runtime: Runtime, parts: Mapping[str, Source[Any]]
) -> tuple[Manifest, Relevance]:
    """Encode all sentences with a source and open the encoding; its parts are opened first."""
    rows = range(len(corpus))
    opened = {p: _opened(parts[p], f"part {p}", corpus, folder, runtime, parts) for p in source.input_labels()}
    source.check_inputs({part: manifest for part, (manifest, _) in opened.items()})

    def fill(work: Work) -> None:
        work.facts |= {"rows": [rows.start, rows.stop], "label": source.spec.name, "kind": source.spec.kind}
        make_all(source.tasks(corpus, rows, _ROWS_PER_SHARD, runtime), work, runtime.progress)

    artefact = ArtefactSpec(
        "encoding", "stsb", source.fingerprint_params(corpus, rows, runtime), {"corpus": corpus.digest}
    )
    manifest, _ = build(folder / name, artefact, fill)
    relevances = {part: relevance for part, (_, relevance) in opened.items()}
    return manifest, source.open(OpenEncoding(corpus, folder / name, manifest, runtime, relevances))


def _corpus(split: str, pairs: list[SentencePair]) -> Corpus:
    """Make a corpus in which rows 2p and 2p + 1 are the sentences of pair p."""
    captions = []
    for p, pair in enumerate(pairs):
        for k, text in enumerate((pair.first, pair.second)):
            name = f"stsb-{split}:{2 * p + k}"
            captions.append(Caption(name, name, "test", text, f"line {pair.line}"))
    return Corpus.from_captions(captions)
