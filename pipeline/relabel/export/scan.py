"""SCAN's files for the repositories that read them: captions and ids by line, and dense blocks.

SCAN (Lee et al., ECCV 2018), VSE-infinity, SGRAF, NAAF and CHAN read `SPLIT_caps.txt`, one caption per line, and
identify a caption by its line number. An image has five consecutive lines, unless there are as many images as captions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import parse_size
from relabel.corpus import Corpus
from relabel.export.base import Export, ExportInputs
from relabel.export.params import ExportScanParams
from relabel.store.arrays import npy_bytes, write_array, write_pieces
from relabel.store.workdir import Work, part_ranges

STORED = {"float32": "<f4", "float16": "<f2"}
_SMALL_TEST = 1000
"""Images of Flickr30K's test split. SCAN's files name a larger one `testall`."""
_CELLS = 1 << 22  # scores in memory


class ScanExport(Export[ExportScanParams]):
    """Per split: `SPLIT_caps.txt`, `SPLIT_ids.txt`, `SPLIT_rows.npy`, `SPLIT_caption_ids.txt`, `SPLIT_relevance.npy`.

    The splits are named `train`, `dev` and `test`, or `testall` if the test split has more than 1,000 images. Line i
    of the captions has row i of `SPLIT_rows.npy` and line i of `SPLIT_caption_ids.txt`. Image ids have no prefix.
    `SPLIT_relevance.npy` holds images as rows and lines as columns.
    """

    @override
    def fingerprint_params(self) -> dict[str, Any]:
        # A limit refuses a block and changes none.
        return self.params.model_dump(mode="json", exclude={"max_bytes"})

    @override
    def check(self, inputs: ExportInputs) -> None:
        per_image = self.params.captions_per_image
        for split, rows in inputs.splits.items():
            images = inputs.corpus.images_of(rows)
            sizes = np.diff(inputs.corpus.indptr[images.start : images.stop + 1])
            if per_image and sizes.min() < per_image:
                few = int((sizes < per_image).sum())
                example = inputs.corpus.image_ids[images.start + int(np.argmax(sizes < per_image))]
                message = f"{few:,} images of {split} have fewer than {per_image} captions; first {example}"
                raise UsageError(message, todo="Write all captions with --captions-per-image 0.")
            self._check_block(inputs, split, len(images), per_image * len(images) or len(rows))

    def _check_block(self, inputs: ExportInputs, split: str, images: int, lines: int) -> None:
        """Raise if a block is to be written that is too large or takes a score of every pair."""
        if not self.params.block:
            return
        todo = "Leave it out with --no-block: `lookup.at_lines` gives the labels of a batch."
        size = npy_bytes(STORED[self.params.dtype], (images, lines))
        if size > parse_size(self.params.max_bytes):
            message = f"the block of {split} takes {size / 2**30:,.1f} GiB ({images:,} images, {lines:,} captions)"
            raise UsageError(message, todo=f"{todo} Or raise --max-bytes.")
        if inputs.source.is_pairwise():
            message = f"{inputs.label} scores pair by pair; a block has {images * lines:,} pairs"
            plan = f"`relabel export plan --label {inputs.label}`"
            raise UsageError(message, todo=f"Leave it out with --no-block, and use a batch plan: {plan}.")

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        files = {}
        for split, rows in inputs.splits.items():
            name = _file_name(inputs.corpus, split, rows)
            lines = line_rows(inputs.corpus, rows, self.params.captions_per_image)
            images = inputs.corpus.images_of(rows)
            texts = inputs.corpus.table.take(lines)
            # A line break inside a caption would shift all later lines.
            captions = [" ".join(text.split()) for text in texts["text"].to_pylist()]
            _write_lines(work, f"{name}_caps.txt", captions)
            ids = texts["image_id"].to_pylist()
            ids = ids if self.params.captions_per_image == 0 else ids[:: self.params.captions_per_image]
            _write_lines(work, f"{name}_ids.txt", [_plain(one, inputs.corpus.namespace) for one in ids])
            _write_lines(work, f"{name}_caption_ids.txt", texts["caption_id"].to_pylist())
            write_array(work, f"{name}_rows", lines)
            if self.params.block:
                shape = len(images), len(lines)
                pieces = _block_pieces(inputs, images, lines)
                write_pieces(work, f"{name}_relevance", STORED[self.params.dtype], shape, pieces)
            files[name] = {"images": len(images), "lines": len(lines)}
        work.facts["files"] = files


def line_rows(corpus: Corpus, rows: range, captions_per_image: int) -> NDArray[np.int32]:
    """Return the corpus row of every line: the first captions of each image, all for 0."""
    if captions_per_image == 0:
        return np.arange(rows.start, rows.stop, dtype=np.int32)
    images = corpus.images_of(rows)
    starts = corpus.indptr[images.start : images.stop]
    return (starts[:, None] + np.arange(captions_per_image)).reshape(-1).astype(np.int32)


def _file_name(corpus: Corpus, split: str, rows: range) -> str:
    """Return the name of a split in SCAN's files."""
    if split == "test" and len(corpus.images_of(rows)) > _SMALL_TEST:
        return "testall"
    return {"val": "dev"}.get(split, split)


def _plain(identifier: str, namespace: str) -> str:
    """Return an id without its prefix: the loaders read image ids as numbers."""
    return identifier.removeprefix(f"{namespace}:")


def _write_lines(work: Work, name: str, lines: list[str]) -> None:
    if any("\n" in line or "\r" in line or not line for line in lines):
        raise CheckError("an id or caption is empty or has a line break", where=name)
    work.file(name, lambda path: path.write_bytes("".join(f"{line}\n" for line in lines).encode()))


def _block_pieces(inputs: ExportInputs, images: range, lines: NDArray[np.int32]) -> Iterator[NDArray[Any]]:
    """Yield the rows of a block, some images at a time."""
    bar_of = inputs.progress.bar(f"block of {inputs.label}", len(images), "images")
    with closing(inputs.open_relevance()) as relevance, bar_of as bar:
        for part in part_ranges(images, max(1, _CELLS // len(lines))):
            yield relevance.block(inputs.corpus.references(part), lines)
            bar.advance(len(part))
