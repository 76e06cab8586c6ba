"""What of an older table of neighbours still stands.

A caption stays if its id is still there with the same encoding. A query stays if its captions do and all of its old
neighbours do: its neighbours are then the best of the old ones and of the captions that are new or changed. All other
queries are searched anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.corpus import REFERENCES
from relabel.errors import RelabelError
from relabel.neighbours.base import Rows, Search
from relabel.neighbours.keys import KEYS, read_keys
from relabel.neighbours.old_lists import OldLists
from relabel.neighbours.params import Of
from relabel.store.checked import save_array
from relabel.store.manifest import Manifest, open_artefact
from relabel.store.work import Work

MOST = 0.5
"""Share of all comparisons up to which an update is worth while."""
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """What of an older table is kept.

    Attributes
    ----------
    kept : (Qk,) int64
        Numbers of queries whose old neighbours still stand, ascending.
    places : (Qk,) int64
        Where each of them is in the old table, ascending.
    moved : (R,) int32
        Row of each old caption now; -1 if it is gone or changed. By old row, less `first`.
    first : int
    added : (A,) int32
        Candidates that are new or changed, ascending.
    """

    kept: Numbers
    places: Numbers
    moved: Rows
    first: int
    added: Rows

    def save(self, work: Work) -> None:
        """Write the plan for all workers."""
        for name, values in vars(self).items():
            work.file(f"{name}.npy", lambda path, v=values: _save(path, np.asarray(v)))  # type: ignore[misc]

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """Read a plan that `save` wrote."""
        kept, places, moved, first, added = (np.load(folder / f"{name}.npy") for name in cls.__dataclass_fields__)
        return cls(kept, places, moved, int(first), added)


def old_table(folder: Path, semantic: dict[str, Any], values: str) -> Manifest | str:
    """Read the manifest of the table that is to be replaced, or say why nothing of it can be kept.

    Parameters
    ----------
    folder : Path
    semantic : dict
        Of the new table; where its rows are and how they are cut may differ.
    values : str
        See `keys.shared`.
    """
    try:
        manifest = open_artefact(folder, "neighbours")
    except RelabelError:
        return "there is no older table"
    for name, value in semantic.items():
        if name not in ("rows", "rows_per_shard") and manifest.semantic.get(name) != value:
            return f"{name} was {manifest.semantic.get(name)}"
    if manifest.facts.get("values") != values or KEYS not in manifest.files:
        return "what all values share has changed (parameters, model, document frequencies)"
    return manifest


def plan_update(folder: Path, manifest: Manifest, of: Of, search: Search, keys: pa.Table) -> Plan | str:
    """Decide what of an older table is kept, or say why nothing is.

    Parameters
    ----------
    folder, manifest
        The older table.
    of : "captions" or "images"
    search : Search
        What is looked for now.
    keys : pyarrow.Table
        Keys of the candidates now, in row order.
    """
    old = read_keys(folder)
    was = _was(old, keys)
    moved = np.full(len(old), -1, np.int32)
    moved[was[was >= 0]] = search.candidates[was >= 0]
    stay = moved[moved >= 0]
    if (np.diff(stay) <= 0).any():
        return "captions stand in another order, so that ties do"
    first, lists = int(old["row"][0].as_py()), OldLists(folder, manifest)
    if not np.array_equal(old["row"].to_numpy(), first + np.arange(len(old))):
        return "its rows have gaps"
    origin = np.full(int(search.candidates[-1]) + 1, -1, np.int64)
    origin[search.candidates] = was
    kept, numbers = (_kept_captions if of == "captions" else _kept_images)(search, origin, old)
    places = lists.places(numbers)
    if len(stay) < len(old):
        stands = lists.stands(places, moved >= 0, first)
        kept, places = kept[stands], places[stands]
    added = search.candidates[was < 0]
    every, rest = len(search.queries), len(search.queries) - len(kept)
    cost = len(kept) * len(added) + rest * len(search.candidates)
    if cost > MOST * every * len(search.candidates):
        return f"{len(added):,} of {len(search.candidates):,} captions are new or changed, which is too many"
    return Plan(kept, places, moved, first, added)


def _was(old: pa.Table, new: pa.Table) -> Numbers:
    """Where each caption stands in the old keys; -1 if it is not there, or its encoding is another."""
    at = pc.index_in(new["caption_id"], value_set=old["caption_id"].combine_chunks())
    was = np.asarray(pc.fill_null(at, -1).to_numpy(), np.int64)
    there = was >= 0
    same = pc.equal(new["digest"].filter(pa.array(there)), old["digest"].take(pa.array(was[there])))
    was[np.flatnonzero(there)[~same.to_numpy()]] = -1
    return was


def _kept_captions(search: Search, origin: Numbers, old: pa.Table) -> tuple[Numbers, Numbers]:
    """Numbers of queries whose caption stays, and what column `row` of the old table calls it."""
    was = origin[search.queries.rows]
    kept = np.flatnonzero(was >= 0)
    return kept, old["row"].to_numpy()[was[kept]].astype(np.int64)


def _kept_images(search: Search, origin: Numbers, old: pa.Table) -> tuple[Numbers, Numbers]:
    """Numbers of queries whose references are, one for one, those of an old image; and that image's old number."""
    sets, image = search.queries, old["image"].to_numpy()
    starts, sizes = sets.indptr[:-1], np.diff(sets.indptr)
    was = origin[sets.rows]
    _, first, count = np.unique(image, return_index=True, return_counts=True)
    begins, counts = (np.repeat(v, count) for v in (first, count))  # of each old caption's image
    expected = np.repeat(np.where(was[starts] >= 0, begins[was[starts]], 0), sizes)
    place = np.arange(len(was)) - np.repeat(starts, sizes)
    same = np.logical_and.reduceat((was >= 0) & (was == expected + place), starts)
    kept = np.flatnonzero(same & (sizes == np.minimum(REFERENCES, counts[was[starts]])))
    return kept, image[was[starts[kept]]].astype(np.int64)


def _save(path: Path, values: NDArray[Any]) -> None:
    save_array(path, values)
