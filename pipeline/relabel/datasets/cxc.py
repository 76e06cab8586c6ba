"""Human scores: Crisscrossed Captions (CxC), shipped as Parquet of ids, scores and sampling methods.

CxC (Parekh et al., EACL 2021, arXiv 2004.15020) scores pairs of COCO's Karpathy val and test captions and images from 0
(nothing in common) to 5 (the same). Three tasks: `sts` caption and caption, `sits` caption and image, `sis` image and
image. The originals are one CSV a task and split; `convert` made the shipped files of them and `check_originals`
compares the two.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, read_text
from relabel.store.files import input_sha256, sha256_file, write_atomic
from relabel.store.manifest import read_columns, view_column

Task = Literal["sts", "sits", "sis"]
Split = Literal["val", "test"]
Side = Literal["caption", "image"]

TASKS: tuple[Task, ...] = get_args(Task)
SIDES: dict[Task, tuple[Side, Side]] = {
    "sts": ("caption", "caption"),
    "sits": ("caption", "image"),
    "sis": ("image", "image"),
}
"""Kinds of the left and the right id of each task."""
METHODS: dict[Task, tuple[str, ...]] = {
    "sts": ("c2c_cocaption", "c2c_isim"),
    "sits": ("c2i_original", "c2i_intrasim"),
    "sis": ("i2i_csim",),
}
"""Sampling methods. `c2c_cocaption` and `c2i_original` are pairs of one image (GT); all others are of two images."""
NAMESPACE = "coco"
LICENCE = "Free use for any purpose; acknowledgement of Google LLC as the data source is appreciated. Provided as is."
SOURCE = "https://github.com/google-research-datasets/Crisscrossed-Captions"
CITATION = (
    "Z. Parekh, J. Baldridge, D. Cer, A. Waters, Y. Yang. Crisscrossed Captions: Extended Intramodal and Intermodal "
    "Semantic Similarity Judgments for MS-COCO. EACL 2021. arXiv:2004.15020."
)
_CELL = {
    "caption": re.compile(r"COCO_val2014:sentid:([0-9]{1,9})"),
    "image": re.compile(r"COCO_val2014_([0-9]{12})\.jpg"),
}


@dataclass(frozen=True, eq=False)
class HumanScores:
    """All judged pairs of one task and split, in the order of the original file.

    `left`, `right`: namespaced caption or image ids (`coco:770337`); see `SIDES`.
    `score`: (P,) float64; mean human score, 0..5; the original's decimals round-trip exactly.
    `method`: sampling method; see `METHODS`.
    """

    task: Task
    split: Split
    left: list[str]
    right: list[str]
    score: NDArray[np.float64]
    method: list[str]

    def __len__(self) -> int:
        return len(self.left)


def file_name(task: Task, split: Split) -> str:
    """Return the name of a shipped file."""
    return f"cxc_{task}_{split}.parquet"


def sha256(task: Task, split: Split) -> str:
    """Return the sha256 of a shipped file, which judgements record as their input."""
    return input_sha256(shipped(task, split))


def human_scores(task: Task, split: Split) -> HumanScores:
    """Read the shipped scores of one task and split; needs no network and no other file."""
    table = _read(task, split)
    left, right = ([f"{NAMESPACE}:{n}" for n in table[side].to_pylist()] for side in ("left", "right"))
    return HumanScores(task, split, left, right, table["score"].to_numpy(), table["method"].to_pylist())


def image_ids(split: Split) -> NDArray[np.int64]:
    """Return the COCO ids of a split's SITS images, sorted, (5000,) int64: exactly the images of Karpathy's split."""
    return np.unique(view_column(_read("sits", split)["right"])).astype(np.int64)


def check_originals(folder: Path) -> None:
    """Compare the fetched CSV files, cell by cell, with the shipped data.

    `folder`: holds `sts_val.csv`, `sts_test.csv`, `sits_val.csv`, ...
    """
    for task in TASKS:
        for split in get_args(Split):
            _check_one(folder / f"{task}_{split}.csv", task, _read(task, split))


def convert(folder: Path, out: Path) -> None:
    """Make the shipped files: ``convert(Path("cxc"), Path("pipeline/relabel/datasets/cxc_data"))``."""
    for task in TASKS:
        for split in get_args(Split):
            table = _parse(folder / f"{task}_{split}.csv", task, split)
            write_atomic(out / file_name(task, split), partial(_write, table))


def shipped(task: Task, split: Split) -> Path:
    """Return the shipped file of one task and split."""
    return Path(__file__).with_name("cxc_data") / file_name(task, split)


def _read(task: Task, split: Split) -> pa.Table:
    return read_columns(shipped(task, split))


def _write(table: pa.Table, path: Path) -> None:
    # Dictionaries for the two columns of few values alone: ids hardly repeat, and zstd packs them better bare.
    pq.write_table(table, path, compression="zstd", compression_level=19, use_dictionary=["score", "method"])


def _cells(path: Path, task: Task) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` and the four cells of every data line."""
    left, right = SIDES[task]
    header = [f"{left}1", f"{right}2"] if left == right else [left, right]
    check_regular(path, todo="Get it with `relabel fetch cxc`.")
    # An empty `newline` leaves line ends to the csv module, since a quoted cell may hold one.
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        if (header_read := next(reader, [])) != (expected := [*header, "agg_score", "sampling_method"]):
            raise CheckError(
                f"expected the header {','.join(expected)}, found {','.join(header_read)}", where=f"{path}:1"
            )
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            if len(cells) != 4:
                raise CheckError(f"expected 4 cells, found {len(cells)}", where=where)
            yield where, cells
    except csv.Error as error:
        raise CheckError(f"not CSV: {error}", where=f"{path}:{reader.line_num}") from error


def _number(cell: str, side: Side, where: str) -> int:
    match = _CELL[side].fullmatch(cell)
    if match is None:
        raise CheckError(f"not a {side} id of CxC: {cell!r}", where=where)
    return int(match[1])


def _values(cells: list[str], task: Task, where: str) -> tuple[int, int, float, str]:
    # The zip ends after the two ids; score and method are read below.
    left, right = (_number(cell, side, where) for cell, side in zip(cells, SIDES[task], strict=False))
    try:
        score = float(cells[2])
    except ValueError as error:
        raise CheckError(f"not a score: {cells[2]!r}", where=where) from error
    # Written so that NaN is refused as well.
    if not 0 <= score <= 5:
        raise CheckError(f"a score outside 0..5: {cells[2]}", where=where)
    if cells[3] not in METHODS[task]:
        raise CheckError(f"unknown sampling method {cells[3]!r}", where=where)
    return left, right, score, cells[3]


def _parse(path: Path, task: Task, split: Split) -> pa.Table:
    rows = [_values(cells, task, where) for where, cells in _cells(path, task)]
    if not rows:
        raise CheckError("no pairs", where=str(path))
    left, right, score, method = zip(*rows, strict=True)
    # A copy of the file alone still carries its licence, its source and the acknowledgement that the licence asks for.
    metadata = {
        "title": f"Crisscrossed Captions: {task}, {split}; ids, aggregated human scores and sampling methods",
        "left": f"COCO {SIDES[task][0]} id",
        "right": f"COCO {SIDES[task][1]} id",
        "score": "mean human score, 0..5",
        "licence": LICENCE,
        "acknowledgement": "Google LLC",
        "source": f"{SOURCE}, data/{path.name}, sha256 {sha256_file(path)}",
        "citation": CITATION,
    }
    return pa.table(
        {
            "left": pa.array(left, pa.int32()),
            "right": pa.array(right, pa.int32()),
            "score": pa.array(score, pa.float64()),
            "method": pa.array(method, pa.string()).dictionary_encode(),
        }
    ).replace_schema_metadata(metadata)


def _check_one(path: Path, task: Task, shipped: pa.Table) -> None:
    names = shipped.column_names
    rows = list(zip(*(shipped[name].to_pylist() for name in names), strict=True))
    count = 0
    for where, cells in _cells(path, task):
        if count == len(rows):
            raise CheckError(f"more than the {count:,} pairs shipped here", where=where)
        # Parsed values are compared: the shipped decimals round-trip, so equal cells give equal numbers.
        values = _values(cells, task, where)
        if values != rows[count]:
            name, ours, theirs = next(t for t in zip(names, rows[count], values, strict=True) if t[1] != t[2])
            raise CheckError(f"expected {name} {ours}, as shipped here; found {theirs}", where=where)
        count += 1
    if count != len(rows):
        raise CheckError(f"expected {len(rows):,} pairs, found {count:,}", where=str(path))
