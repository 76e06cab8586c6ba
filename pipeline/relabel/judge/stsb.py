"""STS-B: a source's relevance of sentence pairs against human similarity scores, 0 to 5.

Cer, Diab, Agirre, Lopez-Gazpio, Specia: "SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual
Focused Evaluation", SemEval 2017. Only `correlate --stsb` reads it; no label depends on it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from relabel.captions import Caption
from relabel.corpus import Corpus, References
from relabel.datasets import locate
from relabel.errors import CheckError
from relabel.judge.statistics import pearson, settled, spearman
from relabel.runtime import Runtime
from relabel.sources.base import Pooling, Relevance, Scores, Source
from relabel.store.artefact import build
from relabel.store.manifest import Draft, Manifest
from relabel.store.units import make_all
from relabel.store.work import Work

SPLITS = ("dev", "test")
_FIELDS = ("sentence1", "sentence2", "score")
_ROWS_PER_SHARD = 50_000


class SentencePair(NamedTuple):
    """Two sentences, their human score 0..5, and the line where they stand."""

    first: str
    second: str
    score: float
    line: int


@dataclass(frozen=True)
class StsbScore:
    """How well a source agrees with people over n pairs; coefficients -1..1, None where undefined."""

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
    """Score the pairs of STS-B and hold them against people's scores.

    A sentence stands for an image of its own, so a source with document frequencies counts it as one document. Where
    r(a, b) is not r(b, a), a pair's score is the mean of both.

    Parameters
    ----------
    source : Source
    data : Path
        Folder of fetched files, or one with the csv files in it.
    folder : Path
        Where the encoding lies for the moment.
    runtime : Runtime
    splits : sequence of str
        Of train, dev, test.
    parts : mapping of str to Source
        The labels that it is made of or gated by, and theirs.

    Raises
    ------
    MissingError
        If a file is not there, or something that the source needs.
    CheckError
        If a row is not two sentences and a score; names file and line.
    """
    scores = []
    for split in splits:
        pairs = read_stsb(_find(f"stsb-en-{split}.csv", data))
        relevance = settled(_relevance(source, split, pairs, folder, runtime, parts))
        human = np.array([p.score for p in pairs])
        scores.append(StsbScore(split, len(pairs), pearson(relevance, human), spearman(relevance, human)))
    return scores


def read_stsb(path: Path) -> list[SentencePair]:
    """Read a csv file without header: sentence1, sentence2, score.

    Raises
    ------
    CheckError
        Naming file and line: not three fields, an empty sentence, no score from 0 to 5, not UTF-8, no rows.
    """
    pairs: list[SentencePair] = []
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            reader = csv.reader(handle, strict=True)
            end = 0
            for row in reader:
                pairs.append(_pair(row, f"{path}, line {end + 1}", end + 1))
                end = reader.line_num
    except UnicodeDecodeError as error:
        raise CheckError(f"not UTF-8: {error.reason}", where=f"{path}, line {_bad_line(path)}") from error
    except csv.Error as error:
        raise CheckError(f"not csv: {error}", where=f"{path}, line {reader.line_num}") from error
    if not pairs:
        raise CheckError("no sentence pairs", where=str(path))
    return pairs


def _pair(row: list[str], where: str, line: int) -> SentencePair:
    if len(row) != len(_FIELDS):
        raise CheckError(f"expected {', '.join(_FIELDS)}; found {len(row)} fields", where=where)
    first, second, text = row
    if not (first.strip() and second.strip()):
        raise CheckError("an empty sentence", where=where)
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not 0 <= score <= 5:
        raise CheckError(f"expected a score from 0 to 5, found {text!r}", where=where)
    return SentencePair(first, second, score, line)


def _bad_line(path: Path) -> int:
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return number
    raise AssertionError("no line is bad, but the file is")


def _find(file: str, data: Path) -> Path:
    beside = data / file
    return beside if beside.is_file() else locate("stsb", file, data)


def _relevance(
    source: Source[Any],
    split: str,
    pairs: list[SentencePair],
    folder: Path,
    runtime: Runtime,
    parts: Mapping[str, Source[Any]],
) -> Scores:
    """(P,) float64: the source's relevance of each pair."""
    corpus = _corpus(split, pairs)
    if "ptb" in {one.tokenizer() for one in (source, *parts.values())}:
        from relabel.ptb import tokenize

        corpus = corpus.with_tokens(tokenize(corpus.texts, runtime))
    first, second = (np.arange(k, len(corpus), 2, dtype=np.int32) for k in (0, 1))
    how: Pooling = "refs" if "paired" in source.refused else "paired"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="stsb-", dir=folder) as temporary:
        relevance = _opened(source, "label", corpus, Path(temporary), runtime, parts)[1]
        scores: Scores = relevance.pairs(References.single(first), second, how)
        if not source.symmetric:
            scores = (scores + relevance.pairs(References.single(second), first, how)) / 2
    return scores


def _opened(
    source: Source[Any], name: str, corpus: Corpus, folder: Path, runtime: Runtime, parts: Mapping[str, Source[Any]]
) -> tuple[Manifest, Relevance]:
    """Encode all sentences with a source and open the encoding, after those that it is made of."""
    rows = range(len(corpus))
    made = {p: _opened(parts[p], f"part {p}", corpus, folder, runtime, parts) for p in source.parts()}
    source.check_parts({part: manifest for part, (manifest, _) in made.items()})

    def fill(work: Work) -> None:
        work.facts |= {"rows": [rows.start, rows.stop], "label": source.name, "kind": source.kind}
        make_all(source.units(corpus, rows, _ROWS_PER_SHARD, runtime), work, runtime.progress)

    draft = Draft("encoding", "stsb", source.semantic(corpus, rows, runtime), {"corpus": corpus.digest})
    manifest, _ = build(folder / name, draft, fill)
    opened = source.open(corpus, folder / name, manifest, runtime, {p: relevance for p, (_, relevance) in made.items()})
    return manifest, opened


def _corpus(split: str, pairs: list[SentencePair]) -> Corpus:
    """Rows 2p and 2p + 1 are the sentences of pair p."""
    captions = []
    for p, pair in enumerate(pairs):
        for k, text in enumerate((pair.first, pair.second)):
            name = f"stsb-{split}:{2 * p + k}"
            captions.append(Caption(name, name, "test", text, f"line {pair.line}"))
    return Corpus.from_captions(captions)
