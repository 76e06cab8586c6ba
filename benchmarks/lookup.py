"""A (128, 128) block of labels for random captions, from a lookup and from tables without one.

    python benchmarks/lookup.py --torch --labels labels/coco/exports/all/lookup   # written by `relabel export lookup`
    python benchmarks/lookup.py                                                   # a trial with COCO's test captions

The peers are a pandas DataFrame of the vectors in memory, one array per row, the same rows read from Parquet for each
block, and scipy's fancy indexing of CSR rows. Times are medians over random batches in turn; each batch is requested
twice, and the second call is timed. `--torch` imports torch, as a training does, whose OpenMP slows other products.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from harness import CORES, Table, agree, clock, coco_captions, encoded, options, random_vectors

import relabel
from relabel_train.lookup import Lookup, open_lookup

B = 128
Block = Callable[[np.ndarray], np.ndarray]


def trial(folder: Path) -> list[Path]:
    """Export lookups of cider and of random vectors."""
    encoded(folder / "cider", coco_captions(), "cider", "lower_split", CORES)
    settings = {"sources.cider.tokenizer": "lower_split"}
    cider = relabel.export_label(folder / "cider/benchmark", "lookup", "cider", settings=settings)
    return [random_vectors(folder / "vectors", 25_000, 384, "lookup"), cider]


def vector_peers(lookup: Lookup, scratch: Path) -> dict[str, Block]:
    """Return peers that compute paired blocks."""
    vectors, rows = np.load(lookup.folder / "vectors.npy", mmap_mode="r"), lookup.rows
    frame = pd.DataFrame({"vector": list(np.asarray(vectors))}, index=pd.RangeIndex(rows.start, rows.stop, name="row"))
    files = []
    for a in range(0, len(vectors), 50_000):
        files.append(scratch / f"{a}.parquet")
        frame.iloc[a : a + 50_000].reset_index().to_parquet(files[-1], compression=None, row_group_size=5_000)

    def from_pandas(chosen: np.ndarray) -> np.ndarray:
        selected = np.stack(frame.loc[chosen, "vector"].to_numpy())
        return selected @ selected.T

    def from_parquet(chosen: np.ndarray) -> np.ndarray:
        table = pd.read_parquet(files, filters=[("row", "in", chosen.tolist())]).set_index("row")
        selected = np.stack(table.loc[chosen, "vector"].to_numpy()).astype(np.float32)
        return selected @ selected.T

    return {"pandas, in memory": from_pandas, "pandas, Parquet": from_parquet}


def feature_peers(lookup: Lookup) -> dict[str, Block]:
    """Return a peer for blocks of references; cells of an image and its own captions are left to the lookup's table."""
    from scipy.sparse import csr_matrix

    names = ("indptr", "columns", "reference", "candidate", "length", "gauss")
    indptr, columns, reference, candidate, length, gauss = (
        np.load(lookup.folder / f"features.{name}.npy") for name in names
    )
    image, first = (np.load(lookup.folder / f"{name}.npy") for name in ("image", "indptr"))
    shape = (len(lookup), lookup.about.sizes["columns"])
    left, right = (csr_matrix((data, columns, indptr), shape=shape) for data in (reference, candidate))

    def from_scipy(rows: np.ndarray) -> np.ndarray:
        places = rows - lookup.rows.start
        start, stop = first[image[places]], first[image[places] + 1]
        sets = [np.arange(a, min(a + 5, b)) for a, b in zip(start, stop, strict=True)]
        refs = np.concatenate(sets)
        scores = (left[refs] @ right[places].T).toarray()
        scores *= gauss[np.abs(length[refs][:, None] - length[places])]
        cuts = np.cumsum([0, *map(len, sets[:-1])])
        return np.add.reduceat(scores, cuts, axis=0) / np.array([[len(s)] for s in sets])

    return {"scipy, CSR rows": from_scipy}


def measure(table: Table, lookup: Lookup, pooling: str, peers: dict[str, Block], repeats: int) -> None:
    rng = np.random.default_rng(2)
    batches = [rng.integers(lookup.rows.start, lookup.rows.stop, B) for _ in range(repeats)]
    blocks: dict[str, Block] = {"relabel": partial(lookup.block, pooling=pooling), **peers}  # type: ignore[arg-type]
    off, tolerance = ~lookup.same_image(batches[0]), 2e-6 * max(1.0, lookup.about.bounds[1])
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for rows in batches:
        for name, block in blocks.items():
            if name.endswith("Parquet") and len(times[name]) == 3:
                continue
            found = block(rows)
            times[name].append(clock(lambda block=block, rows=rows: block(rows)).wall * 1e3)  # type: ignore[misc]
            if rows is batches[0]:
                agree(name, blocks["relabel"](rows)[off], found[off], tolerance)
    ours = statistics.median(times["relabel"])
    for name in peers:
        table.add(f"{lookup.about.label}, {pooling}", "ms", ours, name, statistics.median(times[name]))


def main() -> None:
    args = options(__doc__, labels=Path, torch=False, repeats=300)
    if args.torch:
        import torch  # noqa: F401
    table = Table(f"A ({B}, {B}) block")
    with tempfile.TemporaryDirectory() as scratch:
        for folder in sorted(args.labels.glob("[!.]*")) if args.labels else trial(Path(scratch)):
            lookup = open_lookup(folder)
            if lookup.about.kind == "vectors":
                measure(table, lookup, "first", vector_peers(lookup, Path(scratch)), args.repeats)
            elif lookup.about.kind == "features":
                measure(table, lookup, "set", feature_peers(lookup), args.repeats)
    table.end("lookup", args.save, "numpy", "pandas", "scipy", "torch")


if __name__ == "__main__":
    main()
