"""Source `scores`: scores of images and captions that another program has computed, by id, from one file.

The file may come from a reranker or a judge that sees the image. It holds any pairs, in any order; `missing` is the
rule for all others. A score belongs to an image, so references stand for the image of the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.readers.containers import DAMAGE
from relabel.sources.base import Encoding, Paths, Source, SourceParams, SourceSpec
from relabel.sources.finder import BlockFinder, Finder, Search
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.arrays import write_array
from relabel.store.files import input_sha256
from relabel.store.manifest import Manifest, combine_chunks, read_columns, view_column
from relabel.store.workdir import Step, Steps, Work, table_task
from relabel_train.scoring.scores import GivenScores, Line, below, gate_line

COLUMNS = ("image_id", "caption_id", "score")
_FILE = "scores.parquet"
_NO_TEXT = "the scores are those of a file, so that a new text has none"
Bound = Annotated[float, Field(ge=-1_000_000, le=1_000_000)]
Integers = NDArray[np.int64]


class ScoresParams(SourceParams):
    """Parameters of scores."""

    paths: ClassVar[Paths] = {"file": {None: None}}
    source: Literal["scores"] = "scores"
    pooling: Pooling = Field("max", description="Pooling of a label in `missing`; it does not affect given scores.")
    file: str | None = Field(
        None, description="Scores: .parquet, .csv or .jsonl with the columns image_id, caption_id and score."
    )
    bounds: tuple[Bound, Bound] = Field((0.0, 1.0), description="Minimum and maximum score; others are an error.")
    missing: Bound | str = Field(
        "refuse",
        description="Relevance of pairs without a score: refuse (an error), a number, or a label of vectors or "
        "features (its relevance is mapped below `bounds`).",
    )

    @property
    def label(self) -> str | None:
        """Label that `missing` names."""
        return self.missing if isinstance(self.missing, str) and self.missing != "refuse" else None


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
        (low, high), missing = params.bounds, params.missing
        other = 2 * low - high if params.label else low if isinstance(missing, str) else missing
        self.spec = replace(self.spec, bounds=(min(low, other), max(high, other)))
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
            image, row, scores = read_scores(path, corpus, self.params.bounds)
            images = corpus.images_of(rows)
            image, row = image - images.start, row - rows.start
            inside = (image >= 0) & (image < len(images)) & (row >= 0) & (row < len(rows))
            if not inside.any():
                message = f"none of its {len(row):,} pairs is an image and a caption of the rows to encode"
                raise CheckError(message, where=str(path), todo="Name the split that was scored.")
            return pa.table({"key": (image * len(rows) + row)[inside], "score": scores[inside]})

        yield Step("given scores", "files", [table_task(_FILE, make, plain=True)], last=True)

    @override
    def open(self, encoding: Encoding) -> ScoresRelevance:
        table, params = read_columns(encoding.folder / _FILE), self.params
        gate = None if params.label is None else encoding.inputs[params.label]
        return ScoresRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=params.pooling,
            given=GivenScores(view_column(table["key"]), view_column(table["score"]), len(encoding.rows)),
            missing=None if isinstance(params.missing, str) else params.missing,
            bounds=params.bounds,
            gate=gate,
            gate_bounds=(0.0, 1.0) if params.label is None else encoding.bounds[params.label],
            failed=np.empty(0, np.int32) if gate is None else gate.failed,
        )

    def _path(self) -> Path:
        if self.params.file is None:
            raise UsageError("no file of scores is set", where="source scores", todo="Set `file`.")
        return check_regular(Path(self.params.file).expanduser(), "no such file of scores")


def read_scores(path: Path, corpus: Corpus, bounds: tuple[float, float]) -> tuple[Integers, Integers, Scores]:
    """Read the image, the row of the caption and the score of each pair, sorted by image and row.

    The error of a record names the first one at fault, counted from 1.
    """
    try:
        table = _read_table(path).combine_chunks()
        ids = {name: pc.cast(combine_chunks(table[f"{name}_id"]), pa.string()) for name in ("image", "caption")}
        scores = np.asarray(pc.fill_null(pc.cast(table["score"], pa.float64(), safe=False), np.nan), np.float64)
    except DAMAGE as error:
        raise CheckError(f"not .parquet, .csv or .jsonl of scores: {error}", where=str(path)) from error

    def refuse(wrong: NDArray[np.bool_], problem: str, values: Any, todo: str | None = None) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            message = f"{int(wrong.sum()):,} of {len(wrong):,} records {problem}; first {values[first]}"
            raise CheckError(message, where=f"{path}: record {first + 1}", todo=todo)

    refuse(~np.isfinite(scores), "have a score that is not a finite number", scores)
    outside = (scores < bounds[0]) | (scores > bounds[1])
    refuse(outside, f"have a score outside {bounds[0]:g} to {bounds[1]:g}", scores, "Set `bounds`.")
    rows, prefix = {}, f"{corpus.namespace}:"
    for name, given in ids.items():
        known = combine_chunks(corpus.table[f"{name}_id"])
        full = pc.if_else(pc.starts_with(given, prefix), given, pc.binary_join_element_wise(prefix, given, ""))
        # Of an image, the row of its first caption is found.
        rows[name] = np.asarray(pc.fill_null(pc.index_in(full, value_set=known), -1), np.int64)
        refuse(rows[name] < 0, f"name no {name} of the corpus", given, f"Ids read like {known[0]}.")
    image, row = corpus.image[rows["image"]].astype(np.int64), rows["caption"]
    first = np.unique(image * len(corpus) + row, return_index=True)[1]
    refuse(~np.isin(np.arange(len(row)), first), "repeat a pair", pc.binary_join_element_wise(*ids.values(), " "))
    return image[first], row[first], scores[first]


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

    `given`: by image and caption, both counted from the first that is encoded.
    `missing`: relevance of all other pairs; None refuses them, unless there is a gate.
    `bounds`: least and largest score.
    `gate`, `gate_bounds`: label of all other pairs, with its least and largest relevance.
    """

    given: GivenScores
    missing: float | None
    bounds: tuple[float, float]
    gate: Relevance | None = None
    gate_bounds: tuple[float, float] = (0.0, 1.0)

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._score(references, captions, pooling or self.pooling, block=False)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._score(references, captions, pooling or self.pooling, block=True)

    @property
    def line(self) -> Line:
        """Line that maps relevance by the gate to that of pairs without a score."""
        return gate_line(self.bounds, self.gate_bounds)

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
        total, count = len(self.corpus.images_of(self.rows)) * len(self.rows), len(self.given.keys)
        if self.missing is None and self.gate is None and count < total:
            # Without a gap, the keys would be 0, 1, 2 and so on.
            gap = np.flatnonzero(np.append(self.given.keys, -1) != np.arange(count + 1))[0]
            self._refuse(total - count, total, int(gap))
        write_array(work, "scores.keys", self.given.keys)
        write_array(work, "scores.values", self.given.values)
        entry: dict[str, Any] = {"missing": self.missing, "line": self.line}
        if self.gate is not None:
            arrays = self.gate.write_lookup(work.prefixed("gate."))
            entry["gate"] = {"kind": arrays.kind, "sizes": arrays.sizes, "bounds": self.gate_bounds}
            entry["gate"] |= arrays.params
        return LookupArrays("scores", "float64", self.failed, params={"scores": entry})

    def _score(self, references: References, captions: Rows, pooling: Pooling, block: bool) -> Scores:
        """Score each set against its caption or, in a block, against all captions."""
        self.positions(references.rows)
        # A set stands for the image of its first reference.
        images = self.corpus.image[references.firsts] - self.corpus.image[self.rows.start]
        positions = self.positions(captions)
        scores, scored = self.given.find(images[:, None] if block else images, positions)
        lacking = ~scored
        if lacking.any() and self.gate is not None:
            if block:
                found = self.gate.block(references, captions, pooling)[lacking]
            else:
                found = self.gate.pairs(references.take(np.flatnonzero(lacking)), captions[lacking], pooling)
            scores[lacking] = below(found, self.line)
        elif lacking.any():
            if self.missing is None:
                first = np.argwhere(lacking)[0]
                key = int(images[first[0]]) * len(self.rows) + int(positions[first[-1]])
                self._refuse(int(lacking.sum()), lacking.size, key)
            scores[lacking] = self.missing
        scores[..., np.isin(captions, self.failed)] = np.nan
        return scores

    def _refuse(self, count: int, total: int, first: int) -> None:
        """Raise for pairs without a score; `first`: key of the first."""
        image, row = np.divmod(first, len(self.rows)) + np.array([self.corpus.image[self.rows.start], self.rows.start])
        named = f"image {self.corpus.image_ids[image]}, caption {self.corpus.caption(row).caption_id}"
        todo = "Score them (`relabel export candidates` lists pairs), or set `missing` to a label or a number."
        raise CheckError(f"{count:,} of {total:,} pairs have no score; first {named}", todo=todo)
