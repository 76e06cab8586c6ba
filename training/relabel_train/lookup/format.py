"""The one home of the lookup's format: which arrays lie in the folder, and what `lookup.json` says of them.

The pipeline writes by these names and types, the reader refuses what differs. All numbers are little-endian `.npy`,
no pickle. N captions, M images; *places* are rows counted from the first row covered.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

FORMAT = 1
DESCRIPTION = "lookup.json"
ORIENTATION = "rows are images, columns are captions; the text direction is the transpose"
SIBLINGS = "by image id; never inferred from a value"

Pooling = Literal["paired", "max", "mean", "refs"]

_IDS = {"bytes": ("|u1", 1), "offsets": ("<i8", 1), "hashes": ("<u8", 1), "order": ("<i4", 1)}
CAPTIONS: dict[str, tuple[str, int]] = {
    "image": ("<i4", 1),
    "indptr": ("<i8", 1),
    "failed": ("<i4", 1),
    **{f"caption_ids.{name}": spec for name, spec in _IDS.items()},
    **{f"image_ids.{name}": spec for name, spec in _IDS.items()},
}
"""Arrays of every lookup: name to dtype and number of dimensions.

`image` (N,): image number of each place, from 0. `indptr` (M + 1,): image m's captions are the places
``indptr[m]:indptr[m + 1]``. `failed`: places that have no encoding, ascending. Ids: see `ids`.
"""

KINDS: dict[str, dict[str, tuple[str, int]]] = {
    "vectors": {"vectors": ("<f4 <f2", 2)},
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
    "others": {
        f"{head}.{name}": spec
        for head in ("single", "set")
        for name, spec in {
            "weights": ("<f8", 1),
            "roots": ("<i4", 1),
            "nodes": ("<i4", 2),
            "values": ("<f8", 1),
        }.items()
    },
    "baseline": {},
}
"""Arrays of each kind; see `vectors`, `features` and `scene_graphs` for what they mean. Several dtypes: any of them.

A kind here is a way to answer: sources of features have two, n-grams (`features`) and tuples (`scene_graphs`). Made of
`others` is a function of them: the arrays of its part i stand under the part's own names, after ``part{i}.``. Its heads
have weights (the intercept first) and trees: `roots` (T,) says where each begins, `nodes` (N, 3) has feature (-1: a
leaf), left and right child, `values` (N,) a leaf's value or a node's threshold, up to which one goes left.
"""

HEADS = ("single", "set")
"""Functions of others: of one reference, and of several."""

NEIGHBOURS: dict[str, tuple[str, int]] = {
    "neighbours.indptr": ("<i8", 1),
    "neighbours.rows": ("<i4", 1),
    "neighbours.scores": ("<f4", 1),
}
"""CSR over the rows that have neighbours, by (-score, row). Only where they were found before the export."""


def kind_arrays(kind: str, params: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """List the arrays of a kind; those of others' parts among them, which ``params["fuse"]`` names."""
    found = dict(KINDS[kind])
    for i, part in enumerate(params["fuse"]["parts"] if kind == "others" else ()):
        found |= {f"part{i}.{name}": spec for name, spec in KINDS[part["kind"]].items()}
    return found


class LookupFileError(ValueError):
    """A folder that is not a lookup, or not the one that was written."""


@dataclass(frozen=True)
class ArrayEntry:
    """What the description says of one array."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Description:
    """What `lookup.json` holds.

    Attributes
    ----------
    kind, source, label : str
    fingerprint, corpus, encoding : str
        Of this lookup and of what it was made from.
    neighbours : dict or None
        None where none were found before the export, else what is said of them: `fingerprint`, `rows` (first and one
        past the last row that has neighbours), `within` (the split whose captions they are), `width` (how many a
        caption has), `index` (exact, or a faiss index that may miss some).
    split : str
    rows : (int, int)
        The corpus rows covered, first and one past the last; whole images.
    bounds : (float, float)
        Least and largest relevance.
    pooling, poolings : str, list of str
        The default, and all that make sense.
    references : int
        An image's references are its first so many captions (`paired`: the caption that names it).
    orientation, siblings : str
    symmetric : bool
        Whether r(a, b) = r(b, a) for single captions.
    dtype : str
        Of stored vectors or weights.
    sizes : dict of str to int
        What the kind's reader must know beside its arrays; see `features`.
    failed : int
        Captions without an encoding; whatever asks them is NaN.
    params : dict
        Of the source and of what it used: for a methods section, and to make it again.
    arrays : dict of str to ArrayEntry
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
        """Stable, readable JSON."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"

    @property
    def schema(self) -> dict[str, tuple[str, int]]:
        """Arrays that must be there."""
        found = CAPTIONS | kind_arrays(self.kind, self.params)
        return found if self.neighbours is None else found | NEIGHBOURS


def read_description(folder: Path) -> Description:
    """Read `lookup.json`.

    Raises
    ------
    FileNotFoundError
        If the folder has none.
    LookupFileError
        If it is of another format, or lacks something.
    """
    path = folder / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not there. Make a lookup with `relabel export lookup`.")
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body.get("format") != FORMAT:
            raise LookupFileError(f"{path}: expected format {FORMAT}, found {body.get('format')}. Export it again.")
        entries = {n: ArrayEntry(e["dtype"], tuple(e["shape"]), e["sha256"]) for n, e in body["arrays"].items()}
        values = {f.name: body[f.name] for f in fields(Description)}
        for name in ("rows", "bounds", "poolings"):
            values[name] = tuple(values[name])
        found = Description(**values | {"arrays": entries})
        missing = set(found.schema) - set(entries)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise LookupFileError(f"{path}: not a description of a lookup ({error!r}). Export it again.") from error
    if missing:
        raise LookupFileError(f"{path}: names no {', '.join(sorted(missing))}. Export it again.")
    return found
