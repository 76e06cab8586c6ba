"""faiss indexes of the vectors of a label, one per shard, with corpus rows as ids."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.export.base import Export, ExportInputs, shards
from relabel.export.params import ExportFaissParams
from relabel.sources.cosine import vectors_from_table
from relabel.store.arrays import save_index
from relabel.store.workdir import Work, part_ranges
from relabel.topk.vector_index import change_index, import_faiss, make_index

CAPTIONS = "captions.parquet"
"""File with the columns row (the ids of the indexes), caption_id and image_id."""
_TRAINED = "trained.faiss"  # trained empty index to which each shard adds its vectors; not part of the export


class FaissExport(Export[ExportFaissParams]):
    """Inner-product indexes ``SPLIT-00000-of-000NN.faiss``, and `CAPTIONS`. Failed rows are left out.

    All shards are filled from the same trained index. Together they give the results of a single index, and their
    inverted lists can be merged.
    """

    rows_per_file = 250_000  # an index is in memory while it is built
    training = 500_000
    """Maximum number of captions for training, evenly spaced: more than 100 for each of 4,096 lists."""

    @override
    def check(self, inputs: ExportInputs) -> None:
        inputs.source.require("index")

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        work.file(_TRAINED, partial(self._train, inputs))
        work.excluded.add(_TRAINED)
        with inputs.runtime.progress.bar(f"index ({self.params.index})", len(inputs.rows), "captions") as bar:
            for split, rows in inputs.splits.items():
                for name, part in shards(split, rows, self.rows_per_file):
                    work.file(f"{name}.faiss", partial(self._write_shard, inputs, work.folder / _TRAINED, part))
                    bar.advance(len(part))
        ids = inputs.corpus.table.select(["row", "caption_id", "image_id"]).slice(inputs.rows.start, len(inputs.rows))
        work.table(CAPTIONS, lambda: ids)
        work.metadata["index"] = self.params.index

    def _train(self, inputs: ExportInputs, path: Path) -> None:
        """Write an empty index, trained on captions that are evenly spaced over all rows."""
        index = make_index(self.params.index, int(inputs.encoding.manifest.metadata["width"]), by_id=True)
        if not index.is_trained:
            step = -(-len(inputs.rows) // self.training)
            parts = part_ranges(inputs.rows, self.rows_per_file)
            sample = np.concatenate([_read(inputs, part)[1][::step] for part in parts])
            index = self._change(inputs, index, lambda place: place.train(sample))
        save_index(path, index)

    def _write_shard(self, inputs: ExportInputs, trained: Path, rows: range, path: Path) -> None:
        ids, vectors = _read(inputs, rows)
        index = import_faiss().read_index(str(trained))
        # In one call, because a graph depends on the batches in which vectors are added.
        save_index(path, self._change(inputs, index, lambda place: place.add_with_ids(vectors, ids)))

    def _change(self, inputs: ExportInputs, index: Any, change: Callable[[Any], object]) -> Any:
        return change_index(index, self.params.index, inputs.runtime.device, change)


def _read(inputs: ExportInputs, rows: range) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the rows with an encoding, and their vectors."""
    vectors = vectors_from_table(inputs.encoding.read(rows, ["vector"]))
    encoded = np.isfinite(vectors).all(axis=1)
    return np.arange(rows.start, rows.stop)[encoded], vectors[encoded]
