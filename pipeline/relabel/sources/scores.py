"""Source `scores`: scores of images and captions that another program has computed, by id, from one file.

The file may come from a reranker or a judge that sees the image. It holds any pairs, in any order; `missing` is the
rule for all others. A score belongs to an image, so references stand for the image of the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.readers.tables import DAMAGE
from relabel.sources.base import Encoding, Paths, Source, SourceParams, SourceSpec
from relabel.sources.finder import BlockFinder, Finder, Search
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.arrays import write_array
from relabel.store.files import input_sha256
from relabel.store.manifest import Manifest, combine_chunks, read_columns, view_column
from relabel.store.workdir import Step, Steps, Work, table_task

REFUSE: Literal["refuse"] = "refuse"
COLUMNS = ("image_id", "caption_id", "score")
_FILE = "scores.parquet"
_NO_TEXT = "the scores are those of a file, so that a new text has none"
Bound = Annotated[float, Field(ge=-1_000_000, le=1_000_000)]


class ScoresParams(SourceParams):
    """Parameters of scores."""

    paths: ClassVar[Paths] = {"file": {None: None}}
    source: Literal["scores"] = "scores"
    pooling: Pooling = Field("max", description="How a label in `missing` pools; given scores do not depend on it.")
    file: str | None = Field(
        None, description="Scores: .parquet, .csv or .jsonl with the columns image_id, caption_id and score."
    )
    bounds: tuple[Bound, Bound] = Field((0.0, 1.0), description="Least and largest score; others are refused.")
    missing: Bound | str = Field(
        REFUSE,
        description="Relevance of pairs without a score: refuse (an error), a number, or a label of vectors or "
        "features, whose relevance is mapped below `bounds`.",
    )

    @property
    def label(self) -> str | None:
        """Label that `missing` names."""
        return self.missing if isinstance(self.missing, str) and self.missing != REFUSE else None


class ScoresSource(Source[ScoresParams]):
    """Scores from a file."""

    spec = SourceSpec(
        name="scores",
        kind="others",
        bounds=(0.0, 1.0),
        symmetric=False,
        params=ScoresParams,
        refused_poolings={"set": "a score belongs to an image, and not to a set of captions"},
        refused={"query": _NO_TEXT},
    )

    def __init__(self, params: ScoresParams) -> None:
        low, high = params.bounds
        if not low < high:
            raise UsageError(f"bounds must rise, found {low:g} and {high:g}", where="source scores")
        if params.label is not None:
            bounds = (2 * low - high, high)
        else:
            number = low if isinstance(params.missing, str) else params.missing
            bounds = (min(low, number), max(high, number))
        self.spec = replace(self.spec, bounds=bounds)
        super().__init__(params)

    @override
    def input_labels(self) -> tuple[str, ...]:
        return () if self.params.label is None else (self.params.label,)

    @override
    def check_inputs(self, inputs: Mapping[str, Manifest]) -> None:
        for label, manifest in inputs.items():
            if manifest.metadata["kind"] not in ("vectors", "features"):
                message = f"{label} cannot score the missing pairs: it is not a label of vectors or features"
                raise UsageError(message, todo="Set `missing` to a label of sbert, cbow or cider, or to a number.")

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the file identified by its sha256."""
        params = self.params.model_dump(mode="json", include={"source", "bounds", "missing"})
        return params | {"file": input_sha256(self._path())}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Make one file of the pairs within the rows, sorted by key (see `ScoresRelevance`)."""
        path = self._path()

        def make() -> pa.Table:
            keys, scores = read_scores(path, corpus, self.params.bounds)
            images = corpus.images_of(rows)
            row, image = keys % len(corpus), keys // len(corpus)
            inside = (row >= rows.start) & (row < rows.stop) & (image >= images.start) & (image < images.stop)
            if not inside.any():
                message = f"none of its {len(keys):,} pairs is an image and a caption of the rows to encode"
                raise CheckError(message, where=str(path), todo="Name the split that was scored.")
            return pa.table({"key": keys[inside], "score": scores[inside]})

        yield Step("given scores", "files", [table_task(_FILE, make, plain=True)], last=True)
        work.metadata["given"] = {"file": path.name, "pairs": pq.read_metadata(work.folder / _FILE).num_rows}

    @override
    def open(self, encoding: Encoding) -> ScoresRelevance:
        table, params = read_columns(encoding.folder / _FILE), self.params
        gate = None if params.label is None else encoding.inputs[params.label]
        return ScoresRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=params.pooling,
            keys=view_column(table["key"]),
            scores=view_column(table["score"]),
            missing=None if isinstance(params.missing, str) else params.missing,
            bounds=params.bounds,
            gate=gate,
            gate_bounds=(0.0, 1.0) if params.label is None else encoding.bounds[params.label],
            failed=np.empty(0, np.int32) if gate is None else gate.failed,
        )

    def _path(self) -> Path:
        if self.params.file is None:
            raise UsageError("no file of scores is set", where="source scores", todo="Set `file`.")
        path = Path(self.params.file).expanduser()
        if path.suffix not in (".parquet", ".csv", ".jsonl"):
            raise UsageError("scores come as .parquet, .csv or .jsonl", where=str(path))
        return check_regular(path, "no such file of scores")


def read_scores(path: Path, corpus: Corpus, bounds: tuple[float, float]) -> tuple[NDArray[np.int64], Scores]:
    """Read the keys of pairs (see `ScoresRelevance`), ascending, and their scores.

    The error of a record names the first one at fault, counted from 1.
    """
    try:
        table = _read_table(path).combine_chunks()
        images, captions = (pc.cast(combine_chunks(table[name]), pa.string()) for name in COLUMNS[:2])
        score = combine_chunks(table["score"])
        if not (pa.types.is_floating(score.type) or pa.types.is_integer(score.type)):
            raise TypeError(f"`score` is {score.type}, and not a number")
        scores = pc.fill_null(pc.cast(score, pa.float64(), safe=False), float("nan")).to_numpy(zero_copy_only=False)
    except DAMAGE as error:
        raise CheckError(f"not a file of scores: {error}", where=str(path)) from error

    def refuse(wrong: NDArray[np.bool_], problem: str, found: Any, todo: str | None = None) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            shown = found[first].as_py() if isinstance(found, pa.Array) else found[first]
            message = f"{int(wrong.sum()):,} of {len(wrong):,} records {problem}; first {shown}"
            raise CheckError(message, where=f"{path}: record {first + 1}", todo=todo)

    refuse(~np.isfinite(scores), "have a score that is not a finite number", scores)
    outside = (scores < bounds[0]) | (scores > bounds[1])
    refuse(outside, f"have a score outside {bounds[0]:g} to {bounds[1]:g}", scores, "Set `bounds`.")
    numbers, example = [], corpus.caption(0)
    first_rows = pa.array(corpus.indptr[:-1])
    known = {"image": (images, corpus.table["image_id"].take(first_rows), example.image_id)}
    known["caption"] = (captions, corpus.table["caption_id"], example.caption_id)
    for kind, (ids, values, like) in known.items():
        prefix = f"{corpus.namespace}:"
        named = pc.if_else(pc.starts_with(ids, prefix), ids, pc.binary_join_element_wise(prefix, ids, ""))
        found = pc.fill_null(pc.index_in(named, value_set=combine_chunks(values)), -1).to_numpy(zero_copy_only=False)
        problem = f"name no {kind} of the corpus"
        refuse(found < 0, problem, ids, f"Ids read like {like}, with or without {prefix}")
        numbers.append(found.astype(np.int64))
    keys = numbers[0] * len(corpus) + numbers[1]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    repeated = np.zeros(len(keys), np.bool_)
    repeated[order[1:][keys[1:] == keys[:-1]]] = True
    refuse(repeated, "repeat a pair", pc.binary_join_element_wise(images, captions, " "))
    return keys, np.asarray(scores, np.float64)[order]


def _read_table(path: Path) -> pa.Table:
    """Read the three columns of a file."""
    if path.suffix == ".parquet":
        table = read_columns(path, [*COLUMNS])
    elif path.suffix == ".csv":
        from pyarrow import csv

        types = {name: pa.string() for name in COLUMNS[:2]} | {"score": pa.float64()}
        options = csv.ConvertOptions(include_columns=COLUMNS, column_types=types)
        # A column of captions may hold line breaks.
        table = csv.read_csv(path, None, csv.ParseOptions(newlines_in_values=True), options)
    else:
        from pyarrow import json

        table = json.read_json(path)
    if lacking := [name for name in COLUMNS if name not in table.column_names]:
        raise KeyError(f"no column {lacking[0]}; it has {', '.join(table.column_names)}")
    return table.select(COLUMNS)


@dataclass(frozen=True, eq=False, repr=False)
class ScoresRelevance(Relevance):
    """Given scores, and a rule for pairs without one.

    `keys`: (n,) int64; pairs, ascending: the number of the image times the captions of the corpus, plus the row.
    `scores`: (n,) float64.
    `missing`: relevance of all other pairs; None refuses them, unless there is a gate.
    `bounds`: least and largest score.
    `gate`, `gate_bounds`: label of all other pairs, with its least and largest relevance.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    keys: NDArray[np.int64]
    scores: Scores
    missing: float | None
    bounds: tuple[float, float]
    gate: Relevance | None = None
    gate_bounds: tuple[float, float] = (0.0, 1.0)
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32))

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        scores, lacking = self._look_up(self._images(references), captions)
        chosen = np.flatnonzero(lacking)
        if self.gate is not None and len(chosen):
            found = self.gate.pairs(references.take(chosen), captions[chosen], pooling or self.pooling)
            scores[chosen] = self._below(found)
        return scores

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        scores, lacking = self._look_up(self._images(references)[:, None], captions)
        if self.gate is not None and lacking.any():
            found = self.gate.block(references, captions, pooling or self.pooling)
            scores[lacking] = self._below(found[lacking])
        return scores

    @property
    def line(self) -> tuple[float, float, float]:
        """Numbers a, b and c: a pair without a score has relevance min(a + b g, c), g being that by the gate.

        The best g becomes the least score c, and the worst g is as far below it as `bounds` are wide.
        """
        (low, high), (worst, best) = self.bounds, self.gate_bounds
        slope = (high - low) / (best - worst)
        return low - slope * best, slope, low

    @property
    @override
    def block_error(self) -> float:
        return 0.0 if self.gate is None else self.line[1] * self.gate.block_error

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        raise UsageError(_NO_TEXT, todo="Ask by a caption's id.")

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        return BlockFinder(self, search, pooling or self.pooling, runtime, None)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        images, rows = self.corpus.images_of(self.rows), len(self.rows)
        image, row = np.divmod(self.keys, len(self.corpus))
        # Images and captions of a lookup are numbered from 0.
        keys = (image - images.start) * rows + (row - self.rows.start)
        if self.missing is None and self.gate is None and len(keys) < len(images) * rows:
            first = int(np.argmax(np.append(keys, -1) != np.arange(len(keys) + 1)))
            self._refuse(len(images) * rows - len(keys), len(images) * rows, *divmod(first, rows))
        write_array(work, "scores.keys", keys)
        write_array(work, "scores.values", self.scores)
        entry: dict[str, Any] = {"missing": self.missing, "line": self.line}
        if self.gate is not None:
            arrays = self.gate.write_lookup(work.prefixed("gate."))
            entry["gate"] = {"kind": arrays.kind, "sizes": arrays.sizes, "bounds": self.gate_bounds}
            entry["gate"] |= arrays.params
        return LookupArrays("scores", "float64", self.failed, params={"scores": entry})

    def _images(self, references: References) -> NDArray[np.int64]:
        """Return the image that each set stands for."""
        self.positions(references.rows)
        return self.corpus.image[references.rows[references.indptr[:-1]]].astype(np.int64)

    def _look_up(self, images: NDArray[np.int64], captions: Rows) -> tuple[Scores, NDArray[np.bool_]]:
        """Return the scores of pairs, with `missing` where there is none, and a mask of the pairs without one."""
        self.positions(captions)
        keys = images * len(self.corpus) + captions
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        scores, lacking = self.scores[at], self.keys[at] != keys
        if lacking.any() and self.gate is None:
            if self.missing is None:
                first = divmod(int(keys[lacking][0]), len(self.corpus))
                offset = self.corpus.images_of(self.rows).start, self.rows.start
                self._refuse(int(lacking.sum()), lacking.size, first[0] - offset[0], first[1] - offset[1])
            scores[lacking] = self.missing
        if len(self.failed):
            scores[np.broadcast_to(np.isin(captions, self.failed), scores.shape)] = np.nan
        return scores, lacking

    def _below(self, found: Scores) -> Scores:
        """Map the relevance of the gate to at most the least score."""
        a, b, most = self.line
        return np.minimum(a + b * found, most)

    def _refuse(self, count: int, total: int, image: int, position: int) -> None:
        """Raise for pairs without a score; `image`, `position`: of the first, from 0 within the encoded rows."""
        own = self.corpus.caption(int(self.corpus.indptr[self.corpus.images_of(self.rows).start + image]))
        other = self.corpus.caption(self.rows.start + position)
        message = f"{count:,} of {total:,} pairs have no score; first image {own.image_id}, caption {other.caption_id}"
        todo = "Score them (`relabel export candidates` lists pairs), or set `missing` to a label or a number."
        raise CheckError(message, todo=todo)
