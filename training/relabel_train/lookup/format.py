"""Format of a lookup: the arrays of the folder and their description, `lookup.json`.

The pipeline writes by these names and types, and the reader rejects anything else. All arrays are little-endian `.npy`
without pickle. N captions, M images; *positions* are rows counted from the first row covered.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from relabel_train.fields import Fields
from relabel_train.folder import AGAIN, ExportFolder, LookupFileError, open_export
from relabel_train.ids import ID_ARRAYS

__all__ = ["Description", "LookupFileError", "Pooling", "read_description"]

FORMAT = 4
DESCRIPTION = "lookup.json"
ORIENTATION = "rows are images, columns are captions; the text direction is the transpose"
SIBLINGS = "by image id; never inferred from a value"

Pooling = Literal["paired", "max", "mean", "refs"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
MOST_REFERENCES = 100
"""Largest number of references of an image."""
MISSING = "Make a lookup with `relabel export lookup`."

CAPTIONS: dict[str, tuple[str, int]] = {
    "image": ("<i4", 1),
    "indptr": ("<i8", 1),
    "failed": ("<i4", 1),
    **{f"caption_ids.{name}": spec for name, spec in ID_ARRAYS.items()},
    **{f"image_ids.{name}": spec for name, spec in ID_ARRAYS.items()},
}
"""Arrays of every lookup: name to dtype and number of dimensions.

`image` (N,): image number of each position, from 0. `indptr` (M + 1,): image m's captions are the positions
``indptr[m]:indptr[m + 1]``. `failed`: positions without an encoding, ascending. Ids are those of `relabel_train.ids`.
"""

KINDS: dict[str, dict[str, tuple[str, int]]] = {
    "vectors": {"vectors": ("<f4 <f2", 2)},
    "image_vectors": {"vectors": ("<f4 <f2", 2), "image_vectors": ("<f4 <f2", 2)},
    "features": {
        "features.indptr": ("<i8", 1),
        "features.columns": ("<i4", 1),
        "features.reference": ("<f8", 1),
        "features.candidate": ("<f8", 1),
        "features.length": ("<i4", 1),
        "features.gauss": ("<f8", 1),
        "siblings.start": ("<i8", 1),
        "siblings.scores": ("<f8", 1),
    },
    "scene_graphs": {
        "scene_graphs.indptr": ("<i8", 1),
        "scene_graphs.tuples": ("<i4", 1),
        "scene_graphs.caption_indptr": ("<i8", 1),
        "scene_graphs.caption_matches": ("<i4", 1),
        "scene_graphs.image_indptr": ("<i8", 1),
        "scene_graphs.image_matches": ("<i4", 1),
        "scene_graphs.image_size": ("<i4", 1),
    },
    "others": {},
    "baseline": {},
}
"""Arrays of each kind, read by `vectors.py` (vectors and image_vectors), `cider.py` (features), `spice.py`
(scene_graphs) and `fuse.py` (others, whose curves are in `lookup.json`).

`vectors` (N, D) are those of the captions, `image_vectors` (M, D) those of the images, for the pooling `refs`.
Several dtypes: any of them. In a lookup of `others` the arrays of part i have the part's own names after ``part{i}.``.
"""

SIZES = {"features": ("columns", "frequent"), "scene_graphs": ("tuples",)}
"""Sizes that the reader of a kind needs besides its arrays."""

LOOKS = ("max", "mean", "refs")
"""Poolings of the references of one part for a curve of a head."""

HEADS = ("single", "set")
"""Fitted functions of a lookup of `others`: for one reference, and for several."""

NEIGHBOURS: dict[str, tuple[str, int]] = {
    "neighbours.indptr": ("<i8", 1),
    "neighbours.rows": ("<i4", 1),
    "neighbours.scores": ("<f4", 1),
}
"""CSR over the rows that have neighbours, by (-score, row). Only if they were computed before the export."""


def kind_arrays(kind: str, params: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Return the arrays of a kind, for `others` with those of the parts that ``params["fuse"]`` names."""
    arrays = dict(KINDS[kind])
    for i, part in enumerate(params["fuse"]["parts"] if kind == "others" else ()):
        arrays |= {f"part{i}.{name}": spec for name, spec in KINDS[part["kind"]].items()}
    return arrays


@dataclass(frozen=True)
class ArrayEntry:
    """Description of one array."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Description:
    """Content of `lookup.json`.

    `fingerprint`, `corpus`, `encoding`: of this lookup, its corpus and its encoding.
    `neighbours`: None if none were computed before the export. Else `fingerprint`, `rows` (first and one past the last
        row that has neighbours), `within` (the split of the neighbours), `width` (neighbours per caption) and `index`
        (None if exact, else the faiss index, which may miss some).
    `rows`: (int, int); corpus rows covered, first and one past the last; all captions of an image or none.
    `bounds`: (float, float); smallest and largest relevance.
    `pooling`, `poolings`: the default, and all that the label supports.
    `references`: number of an image's first captions that are its references (`paired`: the caption that names it).
    `symmetric`: True if r(a, b) = r(b, a) for single captions.
    `dtype`: of stored vectors or weights.
    `sizes`: sizes of `SIZES` for the kind.
    `failed`: captions without an encoding.
    `params`: of the source and its inputs: for a methods section, and to reproduce it.
    """

    kind: str
    source: str
    label: str
    fingerprint: str
    corpus: str
    encoding: str
    neighbours: dict[str, Any] | None
    split: str
    rows: tuple[int, int]
    bounds: tuple[float, float]
    pooling: Pooling
    poolings: tuple[Pooling, ...]
    references: int
    symmetric: bool
    dtype: str
    sizes: dict[str, int]
    failed: int
    params: dict[str, Any]
    arrays: dict[str, ArrayEntry]
    orientation: str = ORIENTATION
    siblings: str = SIBLINGS
    format: int = FORMAT

    def to_json(self) -> str:
        """Return stable, readable JSON."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"

    @property
    def schema(self) -> dict[str, tuple[str, int]]:
        """Arrays that the folder must hold: name to dtype and number of dimensions."""
        arrays = CAPTIONS | kind_arrays(self.kind, self.params)
        return arrays if self.neighbours is None else arrays | NEIGHBOURS


def read_description(folder: Path) -> Description:
    """Read `lookup.json`."""
    return open_export(folder, DESCRIPTION, MISSING, parse_description)


def parse_description(folder: ExportFolder) -> Description:
    """Read `lookup.json` of an open folder; raises as `read_description`."""
    path, body = folder.path / DESCRIPTION, folder.read_json(DESCRIPTION)
    # First: a description of another format has other fields.
    if body.get("format") != FORMAT:
        raise LookupFileError(f"{path}: expected format {FORMAT}, found {body.get('format')!r:.40}. {AGAIN}")
    values = Fields(path, body)
    values.names([field.name for field in fields(Description)])
    kind, pooling, poolings = (
        values.text("kind", KINDS),
        values.text("pooling", POOLINGS),
        values.texts("poolings", POOLINGS),
    )
    if pooling not in poolings:
        values.refuse("pooling", f"one of {', '.join(poolings)}")
    if kind == "vectors" and "refs" in poolings:
        values.refuse("poolings", "no refs, which vectors of single captions do not have")
    rows = values.span("rows", 0, 1 << 31)
    if kind == "others":
        _check_fuse(values.object("params").object("fuse"))
    about = Description(
        kind=kind,
        source=values.text("source"),
        label=values.text("label"),
        fingerprint=values.text("fingerprint"),
        corpus=values.text("corpus"),
        encoding=values.text("encoding"),
        neighbours=None if body["neighbours"] is None else _check_neighbours(values.object("neighbours"), rows),
        split=values.text("split"),
        rows=rows,
        bounds=values.bounds("bounds"),
        pooling=pooling,  # type: ignore[arg-type]
        poolings=poolings,  # type: ignore[arg-type]
        references=values.integer("references", 1, MOST_REFERENCES),
        symmetric=values.flag("symmetric"),
        dtype=values.text("dtype"),
        sizes=_check_sizes(kind, values.object("sizes")),
        failed=values.integer("failed", 0, rows[1] - rows[0]),
        params=values.object("params").body,
        arrays={},
        orientation=values.text("orientation", [ORIENTATION]),
        siblings=values.text("siblings", [SIBLINGS]),
    )
    # Last, since kind, parts and neighbours decide which arrays the folder must hold.
    arrays = values.object("arrays")
    arrays.names(about.schema)
    about.arrays.update({name: _array_entry(arrays.object(name)) for name in about.schema})
    return about


def _array_entry(values: Fields) -> ArrayEntry:
    values.names([field.name for field in fields(ArrayEntry)])
    digest = values.text("sha256")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        values.refuse("sha256", "64 hexadecimal digits")
    return ArrayEntry(values.text("dtype"), values.integers("shape"), digest)


def _check_neighbours(values: Fields, rows: tuple[int, int]) -> dict[str, Any]:
    values.names(["fingerprint", "rows", "within", "width", "index"])
    values.text("fingerprint")
    values.text("within")
    if values.body["index"] is not None:
        values.text("index")
    values.span("rows", *rows)
    values.integer("width", 0, 1 << 31)
    return values.body


def _check_sizes(kind: str, values: Fields) -> dict[str, int]:
    values.names(SIZES.get(kind, ()))
    return {name: values.integer(name) for name in values.body}


def _check_fuse(values: Fields) -> None:
    """Check the parts and heads of the kind `others`."""
    values.names(["parts", "heads"])
    parts = values.objects("parts")
    for part in parts:
        part.names(["label", "kind", "sizes", "bounds"])
        part.text("label")
        part.bounds("bounds")
        _check_sizes(part.text("kind", [kind for kind in KINDS if kind != "others"]), part.object("sizes"))
    heads = values.object("heads")
    heads.names(HEADS)
    for head in (heads.object(name) for name in HEADS):
        head.names(["curves", "cap"])
        if not _are_numbers([head.body["cap"]]):
            head.refuse("cap", "a number")
        curves = head.body["curves"]
        if not isinstance(curves, list) or not curves or not all(_is_curve(curve, parts) for curve in curves):
            wanted = f"lists of a part (0 to {len(parts) - 1}), one of {', '.join(LOOKS)}, ascending knots and values"
            head.refuse("curves", wanted)


def _is_curve(curve: object, parts: list[Fields]) -> bool:
    if not isinstance(curve, list) or len(curve) != 4:
        return False
    part, look, knots, values = curve
    if type(part) is not int or not 0 <= part < len(parts) or look not in LOOKS:
        return False
    if look == "refs" and parts[part].body["kind"] == "vectors":
        return False
    return (
        _are_numbers(knots)
        and _are_numbers(values)
        and len(knots) == len(values)
        and all(a < b for a, b in pairwise(knots))
    )


def _are_numbers(values: object) -> bool:
    return (
        isinstance(values, list) and bool(values) and all(type(v) in (int, float) and math.isfinite(v) for v in values)
    )
