"""Source `scores`: scores of images and captions by id, computed by another program and read from a file.

The file may come from a reranker or a judge that sees the image. It can contain any pairs in any order. `missing`
defines the relevance of all other pairs. Scores belong to images, so a reference set is represented by the image of its
first reference.
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
_NO_TEXT = "its scores are read from a file, and a new text has no score"
Bound = Annotated[float, Field(ge=-1_000_000, le=1_000_000)]
Integers = NDArray[np.int64]


class ScoresParams(SourceParams):
    """Parameters of scores."""

    paths: ClassVar[Paths] = {"file": {None: None}}
    source: Literal["scores"] = "scores"
    pooling: Pooling = Field("max", description="Pooling for a label in `missing`; it does not affect given scores.")
    file: str | None = Field(
        None, description="File of scores: .parquet, .csv or .jsonl with columns image_id, caption_id and score."
    )
    bounds: tuple[Bound, Bound] = Field(
        (0.0, 1.0), description="Minimum and maximum score. Scores outside of this range are an error."
    )
    missing: Bound | str = Field(
        "refuse",
        description="Relevance of pairs without a score: refuse (an error), a number, or a label of vectors or "
        "features (its relevance is mapped below `bounds`).",
    )

    @property
    def label(self) -> str | None:
        """Label in `missing`, if any."""
        return self.missing if isinstance(self.missing, str) and self.missing != "refuse" else None


class ScoresSource(Source[ScoresParams]):
    """Scores from a file."""

    spec = SourceSpec(
        name="scores",
        kind="others",
        bounds=(0.0, 1.0),
        symmetric=False,
        params=ScoresParams,
        refused_poolings={"set": "a score belongs to an image, not to a set of captions"},
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
                message = f"{label} cannot score pairs without a score: it does not have vectors or features"
                raise UsageError(message, hint="Set `missing` to a label of sbert, cbow or cider, or to a number.")

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, with the sha256 of the file."""
        params = self.params.model_dump(mode="json", include={"source", "bounds", "missing"})
        return params | {"file": input_sha256(self._path())}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the step that writes one file of all pairs within the rows, sorted by key (see `ScoresRelevance`)."""
        path = self._path()

        def make() -> pa.Table:
            image, row, scores = read_scores(path, corpus, self.params.bounds)
            images = corpus.images_of(rows)
            image, row = image - images.start, row - rows.start
            inside = (image >= 0) & (image < len(images)) & (row >= 0) & (row < len(rows))
            if not inside.any():
                message = f"none of the {len(row):,} pairs has its image and its caption in the rows to encode"
                raise CheckError(message, where=str(path), hint="Use the split that was scored.")
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
            raise UsageError("the file of scores is not set", where="source scores", hint="Set `file`.")
        return check_regular(Path(self.params.file).expanduser(), "no such file of scores")


def read_scores(path: Path, corpus: Corpus, bounds: tuple[float, float]) -> tuple[Integers, Integers, Scores]:
    """Read the image number, caption row and score of each pair, sorted by image and row.

    An error names the first invalid record, counted from 1.
    """
    try:
        table = _read_table(path).combine_chunks()
        ids = {name: pc.cast(combine_chunks(table[f"{name}_id"]), pa.string()) for name in ("image", "caption")}
        scores = np.asarray(pc.fill_null(pc.cast(table["score"], pa.float64(), safe=False), np.nan), np.float64)
    except DAMAGE as error:
        raise CheckError(f"not .parquet, .csv or .jsonl of scores: {error}", where=str(path)) from error

    def reject(wrong: NDArray[np.bool_], problem: str, values: Any, hint: str | None = None) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            message = f"{int(wrong.sum()):,} of {len(wrong):,} records {problem}; first {values[first]}"
            raise CheckError(message, where=f"{path}: record {first + 1}", hint=hint)

    reject(~np.isfinite(scores), "have a score that is not a finite number", scores)
    outside = (scores < bounds[0]) | (scores > bounds[1])
    reject(outside, f"have a score outside {bounds[0]:g} to {bounds[1]:g}", scores, "Set `bounds`.")
    rows, prefix = {}, f"{corpus.namespace}:"
    for name, values in ids.items():
        existing = combine_chunks(corpus.table[f"{name}_id"])
        full = pc.if_else(pc.starts_with(values, prefix), values, pc.binary_join_element_wise(prefix, values, ""))
        # For an image, this is the row of its first caption.
        rows[name] = np.asarray(pc.fill_null(pc.index_in(full, value_set=existing), -1), np.int64)
        reject(rows[name] < 0, f"have an unknown {name} id", values, f"Ids of the corpus look like {existing[0]}.")
    image, row = corpus.image[rows["image"]].astype(np.int64), rows["caption"]
    first = np.unique(image * len(corpus) + row, return_index=True)[1]
    duplicate = ~np.isin(np.arange(len(row)), first)
    reject(duplicate, "repeat a pair", pc.binary_join_element_wise(*ids.values(), " "))
    return image[first], row[first], scores[first]


def _read_table(path: Path) -> pa.Table:
    """Read the three columns of a file."""
    if path.suffix == ".parquet":
        table = read_columns(path, [*COLUMNS])
    elif path.suffix == ".csv":
        from pyarrow import csv

        types = {name: pa.string() for name in COLUMNS[:2]} | {"score": pa.float64()}
        options = csv.ConvertOptions(include_columns=COLUMNS, column_types=types)
        # Other columns may contain line breaks.
        table = csv.read_csv(path, None, csv.ParseOptions(newlines_in_values=True), options)
    else:
        from pyarrow import json

        table = json.read_json(path)
    if lacking := [name for name in COLUMNS if name not in table.column_names]:
        raise KeyError(f"no column {lacking[0]}; it has {', '.join(table.column_names)}")
    return table.select(COLUMNS)


@dataclass(frozen=True, eq=False, repr=False)
class ScoresRelevance(Relevance):
    """Given scores, and the relevance of pairs without a score.

    `given`: scores by image and caption, both numbered from the first encoded one.
    `missing`: relevance of all other pairs. If it is None and there is no gate, they raise an error.
    `bounds`: minimum and maximum score.
    `gate`, `gate_bounds`: label for all other pairs, with its minimum and maximum relevance.
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
        """Linear map from the gate's relevance to the relevance of pairs without a score."""
        return gate_line(self.bounds, self.gate_bounds)

    @property
    @override
    def block_error(self) -> float:
        return 0.0 if self.gate is None else self.line[1] * self.gate.block_error

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        raise UsageError(_NO_TEXT, hint="Use the id of a caption.")

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        return BlockFinder(self, search, pooling or self.pooling, runtime, None)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        total, count = len(self.corpus.images_of(self.rows)) * len(self.rows), len(self.given.keys)
        if self.missing is None and self.gate is None and count < total:
            # If no pair is missing, the keys are 0, 1, 2, ...
            gap = np.flatnonzero(np.append(self.given.keys, -1) != np.arange(count + 1))[0]
            self._raise_missing(total - count, total, int(gap))
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
        # A set is represented by the image of its first reference.
        images = self.corpus.image[references.firsts] - self.corpus.image[self.rows.start]
        positions = self.positions(captions)
        scores, scored = self.given.find(images[:, None] if block else images, positions)
        absent = ~scored
        if absent.any() and self.gate is not None:
            if block:
                by_gate = self.gate.block(references, captions, pooling)[absent]
            else:
                by_gate = self.gate.pairs(references.take(np.flatnonzero(absent)), captions[absent], pooling)
            scores[absent] = below(by_gate, self.line)
        elif absent.any():
            if self.missing is None:
                first = np.argwhere(absent)[0]
                key = int(images[first[0]]) * len(self.rows) + int(positions[first[-1]])
                self._raise_missing(int(absent.sum()), absent.size, key)
            scores[absent] = self.missing
        scores[..., np.isin(captions, self.failed)] = np.nan
        return scores

    def _raise_missing(self, count: int, total: int, first: int) -> None:
        """Raise an error for pairs without a score. `first`: key of the first of them."""
        image, row = np.divmod(first, len(self.rows)) + np.array([self.corpus.image[self.rows.start], self.rows.start])
        named = f"image {self.corpus.image_ids[image]}, caption {self.corpus.caption(row).caption_id}"
        hint = "Score them (`relabel export candidates` lists pairs), or set `missing` to a label or a number."
        raise CheckError(f"{count:,} of {total:,} pairs have no score; first {named}", hint=hint)
