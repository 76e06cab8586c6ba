"""Files in SCAN's format: captions and ids by line, and dense blocks.

SCAN (Lee et al., ECCV 2018), VSE-infinity, SGRAF, NAAF and CHAN read `SPLIT_caps.txt`, one caption per line, and
identify captions by line number. They expect five consecutive lines per image, or one if there are as many images as
captions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError, UsageError
from relabel.corpus import Corpus
from relabel.export.base import Export, ExportInputs
from relabel.export.params import ExportScanParams
from relabel.store.arrays import write_array, write_pieces
from relabel.store.workdir import Work, part_ranges

_NAMES = {"val": "dev"}
_CELLS = 1 << 22  # scores in memory


class ScanExport(Export[ExportScanParams]):
    """Per split: `SPLIT_caps.txt`, `SPLIT_ids.txt`, `SPLIT_rows.npy`, `SPLIT_caption_ids.txt`, `SPLIT_relevance.npy`.

    The splits are named `train`, `dev` and `test`, or `testall` if the test split has more than 1,000 images. Line i of
    the captions corresponds to row i of `SPLIT_rows.npy` and line i of `SPLIT_caption_ids.txt`. Image ids have no
    prefix. `SPLIT_relevance.npy` has images as rows and lines as columns.
    """

    small_test = 1000
    """Number of images in Flickr30K's test split. In SCAN's files, larger test splits are named `testall`."""
    most_bytes = 4 << 30
    """Maximum size of a block. Loaders read blocks completely."""

    @override
    def check(self, inputs: ExportInputs) -> None:
        per_image = self.params.captions_per_image
        for split, rows in inputs.splits.items():
            images = inputs.corpus.images_of(rows)
            few = np.flatnonzero(np.diff(inputs.corpus.indptr[images.start : images.stop + 1]) < per_image)
            if len(few):
                example = inputs.corpus.image_ids[images.start + int(few[0])]
                message = f"{len(few):,} images of {split} have fewer than {per_image} captions; first {example}"
                raise UsageError(message, hint="Write all captions with --captions-per-image 0.")
            if self.params.block:
                self._check_block(inputs, split, len(images), per_image * len(images) or len(rows))

    def _check_block(self, inputs: ExportInputs, split: str, images: int, lines: int) -> None:
        """Raise if a block is too large, or if the source would have to score every pair."""
        hint = "Leave it out with --no-block; `lookup.at_lines` returns the labels of a batch."
        size = 4 * images * lines
        if size > self.most_bytes:
            message = f"the block of {split} takes {size / 2**30:,.1f} GiB ({images:,} images, {lines:,} captions)"
            raise UsageError(message, hint=hint)
        if inputs.source.is_pairwise():
            message = f"{inputs.label} scores pair by pair; a block has {images * lines:,} pairs"
            command = f"`relabel export batches --label {inputs.label}`"
            raise UsageError(message, hint=f"Leave it out with --no-block, and use precomputed batches: {command}.")

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        corpus, per_image, files = inputs.corpus, self.params.captions_per_image, {}
        for split, rows in inputs.splits.items():
            images, lines = corpus.images_of(rows), line_rows(corpus, rows, per_image)
            name = "testall" if split == "test" and len(images) > self.small_test else _NAMES.get(split, split)
            texts = corpus.table.take(lines)
            # A line break inside a caption would shift all following lines.
            _write_lines(work, f"{name}_caps.txt", [" ".join(text.split()) for text in texts["text"].to_pylist()])
            # The loaders parse image ids as numbers.
            ids = [image_id.removeprefix(f"{corpus.namespace}:") for image_id in texts["image_id"].to_pylist()]
            _write_lines(work, f"{name}_ids.txt", ids[:: per_image or 1])
            _write_lines(work, f"{name}_caption_ids.txt", texts["caption_id"].to_pylist())
            write_array(work, f"{name}_rows", lines)
            if self.params.block:
                shape = len(images), len(lines)
                pieces = _block_pieces(inputs, images, lines)
                write_pieces(work, f"{name}_relevance", "<f4", shape, pieces)
            files[name] = {"images": len(images), "lines": len(lines)}
        work.metadata["files"] = files


def line_rows(corpus: Corpus, rows: range, captions_per_image: int) -> NDArray[np.int32]:
    """Return the corpus row of every line: the first captions of each image, or all captions for 0."""
    if captions_per_image == 0:
        return np.arange(rows.start, rows.stop, dtype=np.int32)
    images = corpus.images_of(rows)
    starts = corpus.indptr[images.start : images.stop]
    return (starts[:, None] + np.arange(captions_per_image)).reshape(-1).astype(np.int32)


def _write_lines(work: Work, name: str, lines: list[str]) -> None:
    if any("\n" in line or "\r" in line or not line for line in lines):
        raise CheckError("an id or caption is empty or has a line break", where=name)
    work.file(name, lambda path: path.write_bytes("".join(f"{line}\n" for line in lines).encode()))


def _block_pieces(inputs: ExportInputs, images: range, lines: NDArray[np.int32]) -> Iterator[NDArray[Any]]:
    """Yield a block in pieces of several images."""
    relevance = inputs.open_relevance()
    with inputs.runtime.progress.bar(f"block of {inputs.label}", len(images), "images") as bar:
        for part in part_ranges(images, max(1, _CELLS // len(lines))):
            yield relevance.block(inputs.corpus.references(part), lines)
            bar.advance(len(part))
