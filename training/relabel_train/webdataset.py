"""Labels of a side-car in webdataset's pipelines: a map step that joins them by key, and the block of a batch.

The module does not import webdataset. The step takes and returns samples (dicts with `__key__` and `__url__`), so it
works in any loader that yields such samples.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing import Value
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.files import LookupFileError, map_array, read_description, verify_files
from relabel_train.ids import hash_ids
from relabel_train.lookup.relevance_collate import collate_with_labels
from relabel_train.lookup.vectors import VectorBlocks
from relabel_train.scoring.references import PaddedReferences, Pooling, indptr_of
from relabel_train.scoring.same_image import same_image
from relabel_train.sidecar import DESCRIPTION, INDEX, SampleLabels, ShardLabels, SideCarDescription

__all__ = ["BlockCollate", "Join", "SampleLabels", "SideCar", "join", "open_sidecar"]

_STEM = re.compile(r"([^/\s?#'\"]+)\.(?:tar(?:\.\w+)?|tgz)(?=$|[\s?#'\"])")


def open_sidecar(path: str | Path, verify: bool = True, cache: int = 64) -> SideCar:
    """Open a side-car. A shard is memory-mapped when one of its samples is first requested.

    Parameters
    ----------
    path : str or Path
        Folder written by `relabel export wds`.
    verify : bool
        Compare a shard with its sha256 when it is mapped. False also opens a folder without its `manifest.json`.
    cache : int
        Shards that are held open; a shard of 10,000 keys takes about 3 MB in addition to its mapped file.

    Raises
    ------
    FileNotFoundError
        If the folder does not contain a side-car.
    LookupFileError
        If a file is missing, damaged or of another format; names the file.
    """
    folder = Path(path).resolve()
    hint = "Make a side-car with `relabel export wds`."
    about = read_description(SideCarDescription, folder / DESCRIPTION, hint, verify)
    if about.layout != "arrays":
        hint = "Export it with --layout arrays, which `join` reads."
        raise LookupFileError(f"{folder}: a side-car of layout {about.layout}, for other tools. {hint}")
    # Keys that are unique in their shard only are found by the shard.
    index = INDEX if about.keys != "shard" else {}
    total = sum(entry.keys for entry in about.shards.values())
    arrays = {name: map_array(folder / f"{name}.npy", dtype, (total,)) for name, dtype in index.items()}
    if verify:
        verify_files(folder, [f"{name}.npy" for name in index])
    return SideCar(folder, about, arrays, verify, cache)


class SideCar:
    """Labels by the key of a sample. Picklable: another process opens the same files. `about`: the description."""

    def __init__(
        self, folder: Path, about: SideCarDescription, index: Mapping[str, NDArray[Any]], verify: bool, cache: int
    ) -> None:
        self.folder, self.about, self._index, self._verify, self._cache = folder, about, index, verify, max(1, cache)
        self._names = list(about.shards)
        self._stops = list(accumulate(about.shards[name].keys for name in self._names))
        self._open: OrderedDict[str, ShardLabels] = OrderedDict()
        self._by_url: dict[str, str | None] = {}
        self._by_stem: dict[str, list[str]] = {}
        for name in self._names:
            self._by_stem.setdefault(name.rpartition("/")[2].removesuffix(".tar"), []).append(name)

    def __repr__(self) -> str:
        about = self.about
        keys, shards = self._stops[-1] if self._stops else 0, len(self._names)
        vectors = "no vectors" if about.dtype is None else f"vectors of {about.width} {about.dtype}"
        return f"<SideCar {about.label} ({about.source}), {about.split}: {keys:,} keys in {shards:,} shards, {vectors}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return open_sidecar, (str(self.folder), self._verify, self._cache)

    def find(self, key: str, url: str | None = None, neighbours: bool = False) -> SampleLabels | None:
        """Return the labels of a sample, or None if it does not have labels.

        Parameters
        ----------
        key : str
            `__key__` of the sample.
        url : str, optional
            `__url__` of the sample: its image shard. If it is not given, or if the shard has another name, the key is
            looked up in all shards.
        neighbours : bool
            Include the neighbours of the captions.

        Raises
        ------
        KeyError
            If keys are unique only within a shard, and `url` does not name a shard of the side-car.
        """
        name = self._shard_name(url) if url is not None else None
        if name is None:
            position, name = self._locate(key, url)
            return None if name is None else self.shard(name).sample(position, neighbours)
        shard = self.shard(name)
        row = shard.position_of.get(key)
        return None if row is None else shard.sample(row, neighbours)

    def shard(self, name: str) -> ShardLabels:
        """Return the labels of one shard by file name, opened if need be."""
        shard = self._open.get(name)
        if shard is not None:
            self._open.move_to_end(name)
            return shard
        shard = ShardLabels.open(self.folder / name, self.about.shards[name], self._verify)
        self._open[name] = shard
        if len(self._open) > self._cache:
            self._open.popitem(last=False)
        return shard

    def _shard_name(self, url: str) -> str | None:
        """Return the shard with the name of an image shard (path, URL or pipe), or None."""
        if url in self._by_url:
            return self._by_url[url]
        stems = _STEM.findall(url)
        of_name = self._by_stem.get(stems[-1], []) if stems else []
        # Shards of one name lie in several folders: the name of the folder decides.
        if len(of_name) > 1:
            of_name = [name for name in of_name if f"/{name.removesuffix('.tar')}." in f"/{url}"]
        self._by_url[url] = of_name[0] if len(of_name) == 1 else None
        return self._by_url[url]

    def _locate(self, key: str, url: str | None) -> tuple[int, str | None]:
        """Return position and shard of a key among all shards."""
        if not self._index:
            where = f"{url} is not one of its shards" if url is not None else "the sample has no __url__"
            raise KeyError(f"{self.folder}: keys are unique only within a shard, and {where}")
        hashes, order = self._index["index.hashes"], self._index["index.order"]
        wanted = hash_ids([key.encode()])[0]
        slot = int(np.searchsorted(hashes, wanted))
        # Two keys may share a hash, so the text decides.
        while slot < len(hashes) and hashes[slot] == wanted:
            number = int(order[slot])
            i = bisect_right(self._stops, number)
            position = number - (self._stops[i - 1] if i else 0)
            if self.shard(self._names[i]).keys[position] == key:
                return position, self._names[i]
            slot += 1
        return -1, None


def join(sidecar: SideCar | str | Path, missing: Literal["raise", "skip"] = "raise", neighbours: bool = False) -> Join:
    """Return a map step that adds the labels of a side-car to each sample, under `labels`.

    Parameters
    ----------
    sidecar : SideCar, or the folder of one
    missing : "raise" or "skip"
        Raise KeyError for a key without a label, or leave the sample out and count it in `Join.skipped`.
    neighbours : bool
        Add the ids and scores of the neighbours of each caption.

    Examples
    --------
    In a webdataset pipeline, pass the step to ``.map`` after ``.decode``, because ``.decode`` accepts only bytes. The
    step only needs the key and the shard of a sample:

    >>> from relabel_train.examples import write_sidecar
    >>> step = join(write_sidecar("example"))
    >>> sample = step({"__key__": "0001", "__url__": "images/00000.tar", "txt": "a dog"})
    >>> sample["labels"].caption_ids, sample["labels"].vectors.shape
    (['mine:0001#0'], (1, 2))
    """
    return Join(sidecar if isinstance(sidecar, SideCar) else open_sidecar(sidecar), missing, neighbours)


class Join:
    """Map step of a pipeline: sample to sample with `labels` (SampleLabels). Made by `join`."""

    def __init__(self, sidecar: SideCar, missing: Literal["raise", "skip"], neighbours: bool) -> None:
        if missing not in ("raise", "skip"):
            raise ValueError(f"missing is {missing!r}; use 'raise' or 'skip'")
        self.sidecar, self._neighbours = sidecar, neighbours
        # In memory that forked and spawned workers share, since each worker has a copy of the step.
        self._skipped = Value("q", 0) if missing == "skip" else None

    @property
    def skipped(self) -> int:
        """Samples that all workers have left out so far."""
        return 0 if self._skipped is None else int(self._skipped.value)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        """Return the sample with its labels, or None for a skipped sample: webdataset drops None."""
        labels = self.sidecar.find(sample["__key__"], sample.get("__url__"), self._neighbours)
        if labels is not None:
            return {**sample, "labels": labels}
        if self._skipped is None:
            shard = sample.get("__url__", "no shard")
            hint = "Export the side-car from the captions of these shards, or leave such samples out: missing='skip'."
            raise KeyError(f"{self.sidecar.folder}: no label for the key {sample['__key__']!r} of {shard}. {hint}")
        with self._skipped.get_lock():
            self._skipped.value += 1
        return None


@dataclass(frozen=True)
class BlockCollate:
    """Collate B joined samples and add their (B, B) `relevance` and `same_image`, as RelevanceCollate does.

    The blocks are those of `Lookup.block` for the same captions, up to the rounding of float16 vectors.

    Attributes
    ----------
    sidecar : SideCar
    collate : callable, optional
        The trainer's collate function. It gets the samples without their labels; `default_collate` of torch by default.
        The blocks are added to a mapping under their names, and to a tuple or list at the end.
    field : str or int
        Key or index of the labels in a sample.
    caption : str, int or callable, optional
        Key or index of the caption's number in a sample, or a function of the sample that returns it. Captions are
        numbered from 0 in the order of the labels. By default, each sample must have one caption.
    pooling : Pooling, optional
        The label's default if omitted.

    Raises
    ------
    ValueError
        If the side-car does not contain vectors, or its keys lack captions of their images and the pooling is not
        "first". When called, if a sample has several captions and does not have a number.

    Examples
    --------
    >>> from relabel_train.examples import write_sidecar
    >>> step = join(write_sidecar("example"))
    >>> samples = [step({"__key__": key, "__url__": "00000.tar"}) for key in ("0001", "0002")]
    >>> batch = BlockCollate(step.sidecar)(samples)
    >>> batch["__key__"], batch["relevance"]
    (['0001', '0002'], tensor([[1.0000, 0.6002],
            [0.6002, 1.0000]]))
    """

    sidecar: SideCar
    collate: Callable[[list[Any]], Any] | None = None
    field: str | int = "labels"
    caption: str | int | Callable[[Any], int] | None = None
    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        about = self.sidecar.about
        if about.dtype is None:
            hint = "Export a lookup, and read its blocks: RelevanceCollate(lookup, caption_id=...)."
            raise ValueError(f"{about.label} ({about.source}) has no vectors. {hint}")
        pooling = self.pooling or about.pooling
        if pooling not in about.poolings:
            raise ValueError(f"{about.label} has no pooling {pooling!r}. Use one of {', '.join(about.poolings)}.")
        if pooling not in ("first", "set") and not about.complete:
            hint = "Pass pooling='first', or export the side-car by image."
            raise ValueError(f"pooling {pooling!r} needs all captions of an image, and a key carries some. {hint}")

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collate samples and add the blocks."""
        labels: list[SampleLabels] = [sample[self.field] for sample in samples]
        chosen = [self._caption(sample, one) for sample, one in zip(samples, labels, strict=True)]
        rest = [self._without_labels(sample) for sample in samples]
        return collate_with_labels(self.collate, rest, self.blocks(labels, chosen))

    def blocks(self, labels: Sequence[SampleLabels], chosen: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return `relevance`, (B, B) float32, and `same_image`, (B, B) bool.

        `chosen`, B numbers: of each sample's caption among those of its labels.
        """
        pooling, count = self.pooling or self.sidecar.about.pooling, len(labels)
        vectors, sizes = [np.asarray(one.vectors) for one in labels], [len(one.caption_rows) for one in labels]
        if pooling == "first":
            # The other captions of a sample play no part.
            vectors = [array[i : i + 1] for array, i in zip(vectors, chosen, strict=True)]
            sizes, chosen = [1] * count, [0] * count
        indptr = indptr_of(sizes)
        positions = indptr[:-1] + np.asarray(chosen)
        # Each sample is an image of this batch, also where two samples show the same one.
        image = np.repeat(np.arange(count, dtype=np.int32), sizes)
        images = np.stack([np.asarray(one.image_vector) for one in labels]) if pooling == "set" else None
        references = PaddedReferences.of_images(
            image, indptr, positions, self.sidecar.about.references, pooling == "first"
        )
        relevance = np.empty((count, count), np.float32)
        VectorBlocks(np.concatenate(vectors), images, image).fill(references, positions, pooling, relevance)
        np.clip(relevance, *self.sidecar.about.bounds, out=relevance)
        numbers = np.array([one.image_row for one in labels])
        return {"relevance": relevance, "same_image": same_image(numbers, numbers)}

    def _caption(self, sample: Any, labels: SampleLabels) -> int:
        """Return the number of a sample's caption."""
        count = len(labels.caption_ids)
        if self.caption is None:
            if count > 1:
                hint = "Say which one is in the batch with caption=..."
                raise ValueError(f"the sample of image {labels.image_id} has {count} captions. {hint}")
            return 0
        number = int(self.caption(sample) if callable(self.caption) else sample[self.caption])
        if not 0 <= number < count:
            raise ValueError(f"the sample of image {labels.image_id} has no caption {number}, but {count} from 0 on")
        return number

    def _without_labels(self, sample: Any) -> Any:
        """Return a sample as the trainer's collate gets it."""
        if isinstance(sample, Mapping):
            return {name: value for name, value in sample.items() if name != self.field}
        position = int(self.field) % len(sample)
        return tuple(value for i, value in enumerate(sample) if i != position)
