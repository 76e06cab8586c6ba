"""Precomputed batches: a seeded list of batches with their exact blocks, mapped from disk.

`relabel export batches` writes them.

The folder holds `batches.json`, ids, `rows.npy` and `images.npy`, (n, B) int32 for all n batches, and `blocks-*.npy`,
(m, B, B) float32 for each shard of m batches. The last batch of an epoch may be short: its rows and images are padded
with -1, and its block with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel_train.files import ExportDescription, map_array, naming, read_description, verify_files
from relabel_train.ids import ID_ARRAYS, Ids
from relabel_train.samplers import EpochSampler, Rows
from relabel_train.scoring.references import Pooling

__all__ = ["Batch", "PlanSampler", "PrecomputedBatches", "open_batches"]

NAME = "batches.json"


@dataclass(frozen=True)
class BatchesDescription(ExportDescription):
    """Content of `batches.json`.

    `items`: "captions" or "images". Images are represented by their first captions, and blocks hold the relevance of
    images to each other. `captions`, `images`: first and one past the last of the rows and images that have ids.
    `left_out`: items among them without a label. `epochs`: batches of each epoch. `neighbours`: the label that provided
    the sampler's neighbours.
    """

    FORMAT: ClassVar[int] = 3

    label: str
    source: str
    source_kind: str
    split: str
    captions: tuple[int, int]
    images: tuple[int, int]
    left_out: int
    items: Literal["captions", "images"]
    batch_size: int
    batches: int
    epochs: tuple[int, ...]
    batches_per_shard: int
    shards: int
    sampler: dict[str, Any]
    neighbours: str | None
    bounds: tuple[float, float]
    pooling: Pooling
    corpus: str
    fingerprint: str
    kind: str = "batches"
    orientation: str = "rows are images; columns are captions, and the text direction is the transpose, or images"
    same_image: str = "by image number (images.npy); never inferred from a value"
    coverage: str = "every pair of every batch"
    exact: str = "float64 scores, rounded to float32 once"


class Batch(NamedTuple):
    """A batch and its labels.

    Attributes
    ----------
    rows : (B,) int32
        Caption rows; entry i represents the caption and its image.
    relevance : (B, B) float32
        r(image of rows[i], caption rows[j]); the labels of text queries are its transpose. In batches of images
        (``about.items``), r(image of rows[i], image of rows[j]).
    same_image : (B, B) bool
        Same-image marks, by id.
    """

    rows: Any
    relevance: Any
    same_image: Any


class PrecomputedBatches:
    """Precomputed batches, opened with `open_batches`. ``batches[i]`` returns batch i as new numpy arrays.

    Forked workers share the memory-mapped files. A pickle holds only the path of the folder, and spawned workers open
    it again.

    Attributes
    ----------
    folder : Path
    about : BatchesDescription
        Content of `batches.json`.
    batch_size : int
    """

    def __init__(self, folder: Path, about: BatchesDescription, arrays: dict[str, NDArray[Any]]) -> None:
        self.folder, self.about, self.batch_size = folder, about, about.batch_size
        self._arrays = arrays
        self._starts = np.concatenate([[0], np.cumsum(about.epochs)]).astype(np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_batches, (str(self.folder),)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def epochs(self) -> int:
        """Number of planned epochs."""
        return len(self._starts) - 1

    def epoch(self, epoch: int) -> list[int]:
        """List the numbers of the batches of an epoch; ValueError if it is not planned."""
        if not 0 <= epoch < self.epochs:
            raise ValueError(f"{self.folder}: epoch {epoch} is not planned; there are 0..{self.epochs - 1}")
        return list(range(int(self._starts[epoch]), int(self._starts[epoch + 1])))

    def __getitem__(self, number: int) -> Batch:
        rows, image = self._batch("rows", number), self._batch("images", number)
        # A short batch ends in rows of -1.
        size = int((rows >= 0).sum())
        block = self._block(number)[:size, :size]
        # Copies: a trainer may write to them, and the mapped files are read-only.
        # Rounding of a cosine may exceed 1, and losses and thresholds would see it.
        relevance = np.clip(block, *self.about.bounds)
        return Batch(np.array(rows[:size]), relevance, image[:size, None] == image[None, :size])

    def tensors(self, number: int) -> Batch:
        """Return batch i as torch tensors: rows int64, relevance float32, same_image bool."""
        # Imported on first use, because batches can be read with only numpy.
        import torch

        rows, relevance, same_image = self[number]
        return Batch(*(torch.from_numpy(a) for a in (rows.astype(np.int64), relevance, same_image)))

    def rows(self, number: int) -> Rows:
        """Return only the caption rows of batch i."""
        rows = self._batch("rows", number)
        return np.array(rows[rows >= 0])

    def images(self, number: int) -> Rows:
        """Return the image number of each entry of batch i."""
        images = self._batch("images", number)
        return np.array(images[images >= 0])

    @property
    def first_row(self) -> int:
        """Corpus row of the first caption id."""
        return self.about.captions[0]

    @property
    def caption_ids(self) -> Ids:
        """Caption ids; the id of a row is at position ``row - first_row``."""
        return Ids.open(self._arrays, "caption_ids")

    @property
    def image_ids(self) -> Ids:
        """Image ids; the id of an image number is at position ``number - about.images[0]``."""
        return Ids.open(self._arrays, "image_ids")

    def names(self, number: int) -> tuple[list[str], list[str]]:
        """Return the caption ids and image ids of batch i."""
        captions = self.caption_ids.names(self.rows(number) - self.first_row)
        return captions, self.image_ids.names(self.images(number) - self.about.images[0])

    def _batch(self, name: str, number: int) -> NDArray[Any]:
        """Return row `number` of an array of batches, a view."""
        if not 0 <= number < len(self):
            raise IndexError(f"no batch {number}; there are {len(self)}")
        batch: NDArray[Any] = self._arrays[name][number]
        return batch

    def _block(self, number: int) -> NDArray[Any]:
        """Return the block of a batch, a (B, B) view of its shard."""
        shard, index = divmod(number, self.about.batches_per_shard)
        block: NDArray[Any] = self._arrays[shard_name(shard, self.about.shards)][index]
        return block


class PlanSampler(EpochSampler):
    """Numbers of the batches of each epoch, for ``DataLoader(batches, batch_size=None, sampler=PlanSampler(batches))``.

    Iteration, `set_epoch` and `shard` work as in `samplers.EpochSampler`. The plan repeats after its last epoch.

    Parameters
    ----------
    batches : PrecomputedBatches
    """

    def __init__(self, batches: PrecomputedBatches) -> None:
        self.batches = batches

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """Return the numbers of the batches of an epoch: (n,) int64."""
        numbers = np.array(self.batches.epoch(epoch % self.batches.epochs))
        short = len(self.batches.rows(numbers[-1])) < len(self.batches.rows(numbers[0]))
        return numbers[:-1] if self.drop_last and short else numbers


def open_batches(path: str | Path, verify: bool = False) -> PrecomputedBatches:
    """Open precomputed batches. The arrays are memory-mapped and read on demand.

    Parameters
    ----------
    path : str or Path
        Folder written by `relabel export batches`.
    verify : bool
        Compare every byte with the sha256 in `manifest.json`. False checks only types, shapes and sizes; this detects
        every truncated file.

    Raises
    ------
    FileNotFoundError
        If the folder does not contain batches.
    LookupFileError
        If a file is missing, damaged or of another format; names the file.
    """
    folder = Path(path).resolve()
    hint = "Make precomputed batches with `relabel export batches`."
    about = read_description(BatchesDescription, folder / NAME, hint, verify)
    batches, size, step = about.batches, about.batch_size, about.batches_per_shard
    with naming(folder / NAME):
        if 0 in (size, step) or [sum(about.epochs), -(-batches // step)] != [batches, about.shards]:
            raise ValueError("wrong values of batch_size, batches, epochs or shards")
    files: dict[str, tuple[str, tuple[int | None, ...]]] = dict.fromkeys(("rows", "images"), ("<i4", (batches, size)))
    for shard in range(about.shards):
        # The last shard holds the remainder.
        files[shard_name(shard, about.shards)] = "<f4", (min(step, batches - shard * step), size, size)
    for kind in ("caption_ids", "image_ids"):
        files |= {f"{kind}.{name}": (dtype, (None,)) for name, dtype in ID_ARRAYS.items()}
    arrays = {name: map_array(folder / f"{name}.npy", dtype, shape) for name, (dtype, shape) in files.items()}
    if verify:
        verify_files(folder, [f"{name}.npy" for name in files])
    return PrecomputedBatches(folder, about, arrays)


def shard_name(shard: int, shards: int) -> str:
    """Return the name of a shard of blocks: `blocks-00000-of-00013`."""
    return f"blocks-{shard:05d}-of-{shards:05d}"
