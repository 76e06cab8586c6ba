"""Batch plans: a seeded list of batches with their exact blocks, written by `relabel export plan`, mapped from disk.

The folder holds `plan.json`, ids, `rows.npy` and `images.npy`, (n, B) int32 for all n batches, and for each shard of m
batches `blocks-*.npy`, (m, B, B) float32. The last batch of an epoch may be short: its rows and images end in -1, its
block in zeros.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel_train.fields import Fields
from relabel_train.folder import (
    AGAIN,
    ExportFolder,
    LookupFileError,
    MappedArray,
    digest_of,
    open_export,
    read_digests,
)
from relabel_train.ids import ID_ARRAYS, Ids, check_ids
from relabel_train.samplers import Rows, batches_of_process

FORMAT = 2
__all__ = ["Batch", "Plan", "open_plan"]

NAME = "plan.json"
MISSING = "Make a batch plan with `relabel export plan`."
ORIENTATION = "rows are images, columns are captions; the text direction is the transpose"
SAME_IMAGE = "by image number (images.npy); never inferred from a value"
COVERAGE = "every pair of every batch"
EXACT = "float64 scores, rounded to float32 once"
_POOLINGS = ("paired", "max", "mean", "refs")
_MOST = 1 << 40  # batches of a plan, captions of a batch


class Batch(NamedTuple):
    """A batch and its labels.

    Attributes
    ----------
    rows : (B,) int32
        Caption rows; entry i stands for the caption and for its image.
    relevance : (B, B) float32
        r(image of rows[i], caption rows[j]); the labels of text queries are its transpose.
    same_image : (B, B) bool
        Same-image marks, by id.
    """

    rows: Any
    relevance: Any
    same_image: Any


class Plan:
    """An open batch plan, as `open_plan` returns it. ``plan[i]`` is batch i as new numpy arrays.

    Forked workers share the mapped files. A pickle holds the folder's name and a digest; spawned workers open the
    folder again and raise if it holds another plan.

    Attributes
    ----------
    folder : Path
    about : dict
        Content of plan.json: sampler, seed, bounds, pooling, orientation, coverage, fingerprint.
    batch_size : int
    """

    def __init__(self, folder: Path, about: dict[str, Any], arrays: dict[str, MappedArray], digest: str) -> None:
        self.folder, self.about, self.batch_size = folder, about, int(about["batch_size"])
        self._starts = np.concatenate([[0], np.cumsum(about["epochs"])]).astype(np.int64)
        self._digest = digest
        self._arrays = {name: array.array for name, array in arrays.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.folder), self._digest)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def epochs(self) -> int:
        """Number of planned epochs."""
        return len(self._starts) - 1

    def epoch(self, epoch: int, rank: int = 0, world_size: int = 1, *, even: bool = True) -> list[int]:
        """List the numbers of the batches of an epoch, or of one process as in Sampler.batches.

        Raises
        ------
        ValueError
            If there is no such epoch or rank.
        """
        if not 0 <= epoch < self.epochs:
            raise ValueError(f"{self.folder}: epoch {epoch} is not planned; there are 0..{self.epochs - 1}")
        # Each epoch is dealt out to processes by itself, so that `even` leaves out the end of an epoch alone.
        first, stop = int(self._starts[epoch]), int(self._starts[epoch + 1])
        return [first + i for i in batches_of_process(stop - first, rank, world_size, even=even)]

    def __getitem__(self, number: int) -> Batch:
        rows, image = self._batch("rows", number), self._batch("images", number)
        # A short batch ends in rows of -1.
        size = int((rows >= 0).sum())
        block = self._block(number)[:size, :size]
        # Copies: a trainer may write to them, and the mapped files are read-only.
        return Batch(np.array(rows[:size]), np.array(block), image[:size, None] == image[None, :size])

    def tensors(self, number: int) -> Batch:
        """Return batch i as torch tensors: rows int64, relevance float32, same_image bool."""
        # Imported on first use: a plan is read by numpy alone.
        import torch

        rows, relevance, same_image = self[number]
        return Batch(*(torch.from_numpy(a) for a in (rows.astype(np.int64), relevance, same_image)))

    def rows(self, number: int) -> Rows:
        """Return the caption rows of batch i alone."""
        rows = self._batch("rows", number)
        return np.array(rows[rows >= 0])

    def images(self, number: int) -> Rows:
        """Return the image number of each entry of batch i."""
        images = self._batch("images", number)
        return np.array(images[images >= 0])

    @property
    def first_row(self) -> int:
        """Corpus row of the first caption id."""
        return int(self.about["captions"][0])

    @property
    def caption_ids(self) -> Ids:
        """Caption ids; the id of a row is at position ``row - first_row``."""
        return self._ids("caption_ids")

    @property
    def first_image(self) -> int:
        """Number of the first image id."""
        return int(self.about["images"][0])

    @property
    def image_ids(self) -> Ids:
        """Image ids; the id of an image number is at position ``image - first_image``."""
        return self._ids("image_ids")

    def names(self, number: int) -> tuple[list[str], list[str]]:
        """Return the caption ids and image ids of batch i."""
        captions = self.caption_ids.names(self.rows(number) - self.first_row)
        return captions, self.image_ids.names(self.images(number) - self.first_image)

    def _ids(self, prefix: str) -> Ids:
        """Open the ids whose arrays have a prefix."""
        return Ids.open({f"{prefix}.{name}": self._arrays[f"{prefix}.{name}"] for name in ID_ARRAYS}, prefix)

    def _batch(self, name: str, number: int) -> NDArray[Any]:
        """Return row `number` of an array of batches, a view."""
        if not 0 <= number < len(self):
            raise IndexError(f"no batch {number}; the plan has {len(self)}")
        batch: NDArray[Any] = self._arrays[name][number]
        return batch

    def _block(self, number: int) -> NDArray[Any]:
        """Return the block of a batch, a (B, B) view of its shard."""
        shard, index = divmod(number, int(self.about["batches_per_shard"]))
        block: NDArray[Any] = self._arrays[shard_name(shard, int(self.about["shards"]))][index]
        return block


def open_plan(path: str | Path, verify: bool = False) -> Plan:
    """Open a batch plan. All its files are mapped together, so that they are of one export.

    Parameters
    ----------
    path : str or Path
        Folder written by `relabel export plan`.
    verify : bool
        Compare every byte with the sha256 in `manifest.json`. False checks types, shapes, sizes and the fields of
        `plan.json`, and finds every file that was cut short; `relabel verify` finds a changed byte.

    Raises
    ------
    FileNotFoundError
        If there is no plan.
    LookupFileError
        If a file is missing, damaged or of another format; names the file.
    """
    folder = Path(path).resolve()
    about, digest, arrays = open_export(folder, NAME, MISSING, partial(_open, verify=verify))
    if verify:
        for array in arrays.values():
            array.check()
    return Plan(folder, about, arrays, digest)


def shard_name(shard: int, shards: int) -> str:
    """Return the name of a shard of blocks: `blocks-00000-of-00013`."""
    return f"blocks-{shard:05d}-of-{shards:05d}"


def _reopen(path: str, digest: str) -> Plan:
    # The folder may have been exported again since the plan was pickled: batches of two plans must not mix.
    plan = open_plan(path)
    if plan._digest != digest:
        raise LookupFileError(f"{path}: another plan was exported there meanwhile. Open it again.")
    return plan


def _open(folder: ExportFolder, verify: bool) -> tuple[dict[str, Any], str, dict[str, MappedArray]]:
    """Map every file of a plan. Return its description, the digest of plan.json, and its arrays."""
    about = _description(folder)
    digests = read_digests(folder, "plan", NAME) if verify else None

    def mapped(name: str, dtype: str, shape: tuple[int | None, ...]) -> MappedArray:
        file = f"{name}.npy"
        return folder.map(file, dtype, shape, None if digests is None else digest_of(digests, folder.path / file))

    batches, size, step = about["batches"], about["batch_size"], about["batches_per_shard"]
    arrays = {name: mapped(name, "<i4", (batches, size)) for name in ("rows", "images")}
    for shard in range(about["shards"]):
        # The last shard holds the remainder.
        name, count = shard_name(shard, about["shards"]), min(step, batches - shard * step)
        arrays[name] = mapped(name, "<f4", (count, size, size))
    for kind in ("caption", "image"):
        ids = {
            f"{kind}_ids.{name}": mapped(f"{kind}_ids.{name}", dtype, (None,)) for name, (dtype, _) in ID_ARRAYS.items()
        }
        first, stop = about[f"{kind}s"]
        check_ids(ids, f"{kind}_ids", stop - first)
        arrays |= ids
    return about, hashlib.sha256(folder.texts[NAME]).hexdigest(), arrays


def _description(folder: ExportFolder) -> dict[str, Any]:
    """Read and check plan.json."""
    path, body = folder.path / NAME, folder.read_json(NAME)
    if (body.get("kind"), body.get("format")) != ("plan", FORMAT):
        actual = f"{body.get('kind')!r:.40}, format {body.get('format')!r:.40}"
        raise LookupFileError(f"{path}: expected plan, format {FORMAT}; found {actual}. {AGAIN}")
    values = Fields(path, body)
    texts = {"label", "source", "source_kind", "split", "corpus", "fingerprint"}
    fixed = {"orientation": ORIENTATION, "same_image": SAME_IMAGE, "coverage": COVERAGE, "exact": EXACT}
    numbers = {"captions", "images", "left_out", "batch_size", "batches", "epochs", "batches_per_shard", "shards"}
    values.names({"kind", "format", "pooling", "bounds", "sampler", "neighbours", *texts, *fixed, *numbers})
    for name in texts:
        values.text(name)
    for name, text in fixed.items():
        values.text(name, [text])
    values.text("pooling", _POOLINGS)
    values.bounds("bounds")
    values.object("sampler")
    if body["neighbours"] is not None:
        values.text("neighbours")
    first, stop = values.span("captions", 0, 1 << 31)
    values.span("images", 0, 1 << 31)
    values.integer("left_out", 0, stop - first)
    values.integer("batch_size", 1, _MOST)
    batches, step = values.integer("batches", 1, _MOST), values.integer("batches_per_shard", 1, _MOST)
    # The numbers must agree before any shape is derived from them.
    if sum(values.integers("epochs", 0, _MOST)) != batches:
        values.refuse("epochs", f"numbers of batches that sum to {batches}")
    values.integer("shards", -(-batches // step), -(-batches // step))
    return body
