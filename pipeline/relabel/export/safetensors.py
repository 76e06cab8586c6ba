"""Vectors of a label as files of safetensors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.hints import command
from relabel.export.base import Export, ExportInputs
from relabel.export.params import ExportSafetensorsParams
from relabel.sources.cosine import vectors_from_table
from relabel.store.workdir import Work, part_ranges


class SafetensorsExport(Export[ExportSafetensorsParams]):
    """Files ``SPLIT-00000-of-000NN.safetensors`` of vectors, rows and caption ids.

    Tensors: `vectors` (N, D), unit or zero, NaN for a caption without an encoding; `rows` (N,) int32 of the corpus;
    `caption_ids.bytes` (uint8) and `caption_ids.offsets` (N + 1,) int64: the UTF-8 of id i are the bytes between
    offsets i and i + 1, since safetensors holds no strings.
    """

    @override
    def check(self, inputs: ExportInputs) -> None:
        if inputs.source.spec.kind != "vectors":
            todo = f"Use {command('export', 'lookup', '--label', inputs.label)}, which holds labels of any kind."
            raise UsageError(f"{inputs.label} ({inputs.source.spec.name}) has no vectors", todo=todo)

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        for split, rows in inputs.splits.items():
            shards = part_ranges(rows, self.params.rows_per_shard)
            for i, shard in enumerate(shards):
                name = f"{split}-{i:05d}-of-{len(shards):05d}.safetensors"
                work.file(name, partial(self._write_shard, inputs, shard), rows=len(shard))
        work.facts |= {"rows": [inputs.rows.start, inputs.rows.stop]}

    def _write_shard(self, inputs: ExportInputs, rows: range, path: Path) -> None:
        from safetensors.numpy import save_file

        vectors = vectors_from_table(inputs.encoding.read_rows(rows, ["vector"]))
        names = [name.encode() for name in inputs.corpus.table["caption_id"].slice(rows.start, len(rows)).to_pylist()]
        tensors = {
            "vectors": vectors.astype(self.params.dtype, copy=False),
            "rows": np.arange(rows.start, rows.stop, dtype=np.int32),
            "caption_ids.bytes": np.frombuffer(b"".join(names), np.uint8),
            "caption_ids.offsets": np.cumsum([0, *map(len, names)], dtype=np.int64),
        }
        save_file(tensors, path, metadata={"label": inputs.label, "encoding": inputs.encoding.manifest.fingerprint})
