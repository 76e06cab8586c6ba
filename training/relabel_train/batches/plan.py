"""Batch plans: a seeded list of batches with their exact blocks, written by `relabel export plan`, mapped from disk.

The folder holds `plan.json`, ids, and for each shard of batches `rows-*.npy` and `images-*.npy` (n, B) int32 and
`blocks-*.npy` (n, B, B) float32. The last batch of an epoch may be short: its rows and images end in -1,
its block in zeros.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel_train.batches.base import Rows, share

if TYPE_CHECKING:
    import torch

    from relabel_train.lookup.ids import Ids

FORMAT = 1
NAME = "plan.json"
KINDS = ("rows", "images", "blocks")


class Batch(NamedTuple):
    """A batch and its labels.

    Attributes
    ----------
    rows : (B,) int32
        Caption rows; entry i stands for the caption and for its image.
    relevance : (B, B) float32
        r(image of rows[i], caption rows[j]); the labels of text queries are its transpose.
    same_image : (B, B) bool
        Whether they are of the same image, by id.
    """

    rows: Any
    relevance: Any
    same_image: Any


class Plan:
    """An opened batch plan; see `open_plan`. ``plan[i]`` is batch i as numpy arrays of its own.

    Files are mapped by each process when it first asks, so a plan goes into forked and spawned workers alike.

    Attributes
    ----------
    folder : Path
    about : dict
        What plan.json says: sampler, seed, range, pooling, orientation, coverage, fingerprint.
    batch_size : int
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder, self.about, self.batch_size = folder, about, int(about["batch_size"])
        self._starts = np.concatenate([[0], np.cumsum(about["epochs"])]).astype(np.int64)
        self._maps: dict[str, NDArray[Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def epochs(self) -> int:
        """How many epochs are planned."""
        return len(self._starts) - 1

    def epoch(self, epoch: int, rank: int = 0, world_size: int = 1, *, even: bool = True) -> list[int]:
        """List the numbers of the batches of an epoch, or of one of several processes; see Sampler.batches.

        Raises
        ------
        ValueError
            If there is no such epoch or rank.
        """
        if not 0 <= epoch < self.epochs:
            raise ValueError(f"{self.folder}: epoch {epoch} is not planned; there are 0..{self.epochs - 1}")
        first, stop = int(self._starts[epoch]), int(self._starts[epoch + 1])
        return [first + i for i in share(stop - first, rank, world_size, even=even)]

    def __getitem__(self, number: int) -> Batch:
        rows, image = self._part("rows", number), self._part("images", number)
        size = int((rows >= 0).sum())
        block = self._part("blocks", number)[:size, :size]
        return Batch(np.array(rows[:size]), np.array(block), image[:size, None] == image[None, :size])

    def tensors(self, number: int) -> Batch:
        """Give batch i as torch tensors: rows int64, relevance float32, same_image bool."""
        import torch

        rows, relevance, same_image = self[number]
        made: list[torch.Tensor] = [torch.from_numpy(a) for a in (rows.astype(np.int64), relevance, same_image)]
        return Batch(*made)

    def rows(self, number: int) -> Rows:
        """Give the caption rows of batch i alone."""
        rows = self._part("rows", number)
        return np.array(rows[rows >= 0])

    def images(self, number: int) -> Rows:
        """Give the image number of each entry of batch i."""
        images = self._part("images", number)
        return np.array(images[images >= 0])

    @property
    def first_row(self) -> int:
        """The corpus row of the first caption id; see `caption_ids`."""
        return int(self.about["ids"]["first_row"])

    @property
    def caption_ids(self) -> Ids:
        """Caption ids; that of a row stands at ``row - first_row``."""
        return self._ids("caption_ids")

    @property
    def first_image(self) -> int:
        """The number of the first image id; see `image_ids`."""
        return int(self.about["ids"]["first_image"])

    @property
    def image_ids(self) -> Ids:
        """Image ids; that of an image number stands at ``image - first_image``."""
        return self._ids("image_ids")

    def names(self, number: int) -> tuple[list[str], list[str]]:
        """Spell batch i: caption ids and image ids."""
        captions = self.caption_ids.names(self.rows(number) - self.first_row)
        return captions, self.image_ids.names(self.images(number) - self.first_image)

    def _ids(self, what: str) -> Ids:
        from relabel_train.lookup.ids import Ids  # which re-exports this module's open_plan

        parts = ("bytes", "offsets", "hashes", "order")
        return Ids.open({f"{what}.{p}": np.load(self.folder / f"{what}.{p}.npy", mmap_mode="r") for p in parts}, what)

    def _part(self, kind: str, number: int) -> NDArray[Any]:
        if not 0 <= number < len(self):
            raise IndexError(f"no batch {number}; the plan has {len(self)}")
        shard, place = divmod(number, int(self.about["batches_per_shard"]))
        name = shard_name(kind, shard, int(self.about["shards"]))
        if name not in self._maps:
            self._maps[name] = self._map(name, kind, shard)
        part: NDArray[Any] = self._maps[name][place]
        return part

    def _map(self, name: str, kind: str, shard: int) -> NDArray[Any]:
        path, size = self.folder / name, int(self.about["batches_per_shard"])
        count = min(size, len(self) - shard * size)
        shape = (count, self.batch_size, self.batch_size) if kind == "blocks" else (count, self.batch_size)
        try:
            found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{path}: not whole ({error}). Export the plan again.") from error
        if found.shape != shape:
            raise ValueError(f"{path}: expected {shape}, found {found.shape}. Export the plan again.")
        return found


def open_plan(path: str | Path) -> Plan:
    """Open a batch plan.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it is of another format.
    """
    folder = Path(path)
    try:
        about = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{folder}: no batch plan here. Make one with `relabel export plan`.") from error
    if (about.get("kind"), about.get("format")) != ("plan", FORMAT):
        found = f"{about.get('kind')}, format {about.get('format')}"
        raise ValueError(f"{folder / NAME}: expected plan, format {FORMAT}; found {found}")
    return Plan(folder, about)


def shard_name(kind: str, shard: int, shards: int) -> str:
    """Name of a shard's file: `blocks-00000-of-00013.npy`."""
    return f"{kind}-{shard:05d}-of-{shards:05d}.npy"
