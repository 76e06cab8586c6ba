"""Construction of a side-car from a lookup: one shard of labels per shard of keys, then an index of all keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Progress
from relabel.corpus import Corpus
from relabel.export.params import ExportWdsParams
from relabel.export.wds.keys import KeyShard
from relabel.store.arrays import write_array
from relabel.store.files import sha256_file, write_text
from relabel.store.manifest import Spec
from relabel.store.workdir import Step, Steps, Task, Work
from relabel_train.ids import Ids, hash_ids
from relabel_train.lookup import Lookup
from relabel_train.sidecar import (
    DESCRIPTION,
    PREFIX,
    Keys,
    ShardEntry,
    SideCarDescription,
    json_member,
    npy_member,
    write_tar,
)

_SHOWN = 5  # missing keys that a message names


@dataclass(frozen=True, eq=False)
class MatchedKeys:
    """Keys of a shard with the captions that they stand for.

    `images`: (K,) int64; image numbers of the lookup; -1 for a key without a label.
    `indptr`: (K + 1,) int64.
    `captions`: (C,) int64; positions in the lookup: key i has ``captions[indptr[i]:indptr[i + 1]]``.
    `complete`: whether every key with a label has all captions of its image.
    """

    keys: list[str]
    images: NDArray[np.int64]
    indptr: NDArray[np.int64]
    captions: NDArray[np.int64]
    complete: bool

    @property
    def missing(self) -> list[str]:
        """Keys without a label."""
        return [self.keys[i] for i in np.flatnonzero(self.images < 0)]


class SideCarWork:
    """Work on one side-car: a task per shard; `lookup` is called once per worker."""

    def __init__(
        self,
        corpus: Corpus,
        lookup: Callable[[], Lookup],
        shards: Sequence[KeyShard],
        keys: Keys,
        params: ExportWdsParams,
        artefact: Spec,
        progress: Progress,
    ) -> None:
        self.corpus, self._open, self.keys, self.params = corpus, lookup, keys, params
        self.artefact, self.progress = artefact, progress
        # Sorted as the reader numbers them.
        self.shards = {shard.name: shard for shard in sorted(shards, key=lambda shard: shard.name)}
        self._counts: dict[str, tuple[int, int, int]] = {}
        self._complete = True

    def steps(self, work: Work) -> Steps:
        """Yield the shards; then write the index of all keys and the description."""
        tasks = [Task(name, partial(self._write, shard), shard.count) for name, shard in self.shards.items()]
        step = Step("side-car", "keys", tasks, last=True)
        if step.missing(work):
            # Keys without a label are an error before anything is written.
            self.count_keys()
        yield step
        if not self._counts:
            self.count_keys()
        if self.keys != "shard" and self.params.layout == "arrays":
            hashes = np.concatenate([_hash_keys(shard) for shard in self.shards.values()])
            order = np.argsort(hashes, kind="stable")
            write_array(work, "index.hashes", hashes[order].astype("<u8"))
            write_array(work, "index.order", order.astype("<i8"))
        about = self.lookup.about
        description = SideCarDescription(
            layout=self.params.layout,
            keys=self.keys,
            complete=self._complete,
            source=about.source,
            label=about.label,
            split=about.split,
            fingerprint=self.artefact.fingerprint,
            corpus=about.corpus,
            lookup=about.fingerprint,
            bounds=about.bounds,
            pooling=about.pooling,
            poolings=about.poolings,
            references=about.references,
            dtype=self.params.dtype if self._has_vectors else None,
            width=self.lookup.arrays["vectors"].shape[1] if self._has_vectors else 0,
            k=self.k,
            shards={
                name: ShardEntry(*counts, sha256_file(work.folder / name)) for name, counts in self._counts.items()
            },
        )
        # A resumed run may have other counts than the one before it: the description is never reused.
        write_text(work.folder / DESCRIPTION, description.to_json())
        totals = np.sum(list(self._counts.values()), axis=0).tolist()
        work.facts |= dict(zip(("keys", "captions", "missing"), totals, strict=True))
        work.facts |= {"shards": len(self.shards), "meaning of keys": self.keys, "layout": self.params.layout}
        work.facts |= {"label": about.label, "split": about.split, "dtype": description.dtype, "k": self.k}

    def count_keys(self) -> None:
        """Match and count all keys; raise CheckError for keys without a label if these are not allowed."""
        missing: list[str] = []
        with self.progress.bar("match keys", sum(shard.count for shard in self.shards.values()), "keys") as bar:
            for name, shard in self.shards.items():
                matched = self.match(shard)
                absent = matched.missing
                missing += [f"{key} ({name})" for key in absent[: _SHOWN - len(missing)]]
                self._counts[name] = shard.count, len(matched.captions), len(absent)
                self._complete &= matched.complete
                bar.advance(shard.count)
        keys, _, total = (sum(column) for column in zip(*self._counts.values(), strict=True))
        if total and not self.params.allow_missing:
            more = f", and {total - len(missing):,} more" if total > len(missing) else ""
            about = self.lookup.about
            raise CheckError(
                f"{total:,} of {keys:,} keys have no caption with an encoding among those of split {about.split}: "
                f"{', '.join(missing)}{more}",
                where=self.params.shards or str(self.lookup.folder),
                todo="Ingest and encode the captions of these shards, choose another --split or --keys, or give "
                "--allow-missing, which marks and counts such keys.",
            )

    def match(self, shard: KeyShard) -> MatchedKeys:
        """Look up the captions of a shard's keys, by id."""
        keys, ids = shard.read()
        arrays = self.lookup.arrays
        if self.keys == "caption":
            captions = Ids.open(arrays, "caption_ids").positions(ids)
            images = np.where(captions < 0, -1, arrays["image"][captions])
            starts, sizes = captions, (captions >= 0).astype(np.int64)
        else:
            images = Ids.open(arrays, "image_ids").positions(ids)
            starts = arrays["indptr"][images]
            sizes = np.where(images < 0, 0, arrays["indptr"][images + 1] - starts)
        indptr = np.zeros(len(keys) + 1, np.int64)
        np.cumsum(sizes, out=indptr[1:])
        captions = np.repeat(starts - indptr[:-1], sizes) + np.arange(indptr[-1])
        # A caption without an encoding has no label: it must not become a vector of NaN.
        usable = ~self.lookup.failed[captions]
        total = np.concatenate(([0], np.cumsum(usable)))
        indptr = total[indptr]
        images = np.where(np.diff(indptr) > 0, images, -1)
        all_captions = arrays["indptr"][images + 1] - arrays["indptr"][images]
        complete = bool((np.diff(indptr) == all_captions)[images >= 0].all())
        return MatchedKeys(keys, images, indptr, captions[usable], complete)

    @cached_property
    def lookup(self) -> Lookup:
        """The opened lookup."""
        return self._open()

    @property
    def k(self) -> int:
        """Neighbours per caption; 0 without."""
        neighbours = self.lookup.about.neighbours
        return 0 if neighbours is None else min(self.params.k, int(neighbours["width"]))

    @property
    def _has_vectors(self) -> bool:
        return "vectors" in self.lookup.arrays

    def _write(self, shard: KeyShard, path: Path) -> None:
        matched = self.match(shard)
        members = self._members(matched) if self.params.layout == "arrays" else self._samples(matched)
        with path.open("wb") as file:
            write_tar(file, members)

    def _members(self, matched: MatchedKeys) -> Iterator[tuple[str, bytes]]:
        """Yield the members of a shard of arrays."""
        texts, arrays = self._shard(matched)
        for name, value in texts.items():
            yield f"{PREFIX}{name}.json", json_member(value)
        for name, array in arrays.items():
            yield f"{PREFIX}{name}.npy", npy_member(array)

    def _samples(self, matched: MatchedKeys) -> Iterator[tuple[str, bytes]]:
        """Yield the members of a shard of samples: `KEY.labels.json`, and `KEY.vectors.npy` of labels with vectors."""
        texts, arrays = self._shard(matched)
        for i, key in enumerate(matched.keys):
            # webdataset ends a key at the first dot of the name.
            if "." in key.rpartition("/")[2]:
                todo = "Choose --layout arrays, which takes any key."
                raise UsageError(f"the key {key} has a dot, at which webdataset would cut it", todo=todo)
            captions = slice(*matched.indptr[i : i + 2].tolist())
            if matched.images[i] < 0:
                yield f"{key}.{PREFIX}json", json_member({"missing": True})
                continue
            sample = {
                "image_id": texts["image_ids"][i],
                "image_row": int(arrays["images"][i]),
                "caption_ids": texts["caption_ids"][captions],
                "caption_rows": arrays["rows"][captions].tolist(),
            }
            if "neighbours" in arrays:
                near = [row[row >= 0].tolist() for row in arrays["neighbours"][captions]]
                scores = zip(arrays["scores"][captions].tolist(), near, strict=True)
                sample["neighbour_ids"] = [[texts["neighbour_ids"][j] for j in row] for row in near]
                sample["neighbour_scores"] = [row[: len(ids)] for row, ids in scores]
            yield f"{key}.{PREFIX}json", json_member(sample)
            if "vectors" in arrays:
                yield f"{key}.vectors.npy", npy_member(arrays["vectors"][captions])
            if "image_vectors" in arrays:
                yield f"{key}.image_vector.npy", npy_member(arrays["image_vectors"][i])

    def _shard(self, matched: MatchedKeys) -> tuple[dict[str, list[str]], dict[str, NDArray[Any]]]:
        """Return the texts and arrays of a shard, as relabel_train.sidecar describes them."""
        lookup, corpus, captions, images = self.lookup, self.corpus, matched.captions, matched.images
        rows = (captions + lookup.rows.start).astype("<i4")
        first = int(corpus.image[lookup.rows.start])
        image_rows = corpus.indptr[np.maximum(images, 0) + first]
        names = corpus.table["image_id"].take(pa.array(image_rows)).to_pylist()
        texts = {
            "keys": matched.keys,
            "image_ids": [name if m >= 0 else "" for name, m in zip(names, images.tolist(), strict=True)],
            "caption_ids": corpus.table["caption_id"].take(pa.array(rows)).to_pylist(),
        }
        arrays: dict[str, NDArray[Any]] = {
            "indptr": matched.indptr.astype("<i8"),
            "images": np.where(images < 0, -1, images + first).astype("<i4"),
            "rows": rows,
        }
        dtype = np.dtype(self.params.dtype).newbyteorder("<")
        if self._has_vectors:
            arrays["vectors"] = lookup.arrays["vectors"][captions].astype(dtype)
        if "image_vectors" in lookup.arrays:
            vectors = lookup.arrays["image_vectors"][np.maximum(images, 0)].astype(dtype)
            vectors[images < 0] = 0
            arrays["image_vectors"] = vectors
        if self.k:
            near, scores = self._neighbours(rows)
            distinct, inverse = np.unique(near[near >= 0], return_inverse=True)
            numbers = np.full(near.shape, -1, "<i4")
            numbers[near >= 0] = inverse.reshape(-1)
            arrays |= {"neighbours": numbers, "scores": scores, "neighbour_rows": distinct.astype("<i4")}
            texts["neighbour_ids"] = corpus.table["caption_id"].take(pa.array(distinct)).to_pylist()
        return texts, arrays

    def _neighbours(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the k best neighbours of captions and their scores; -1 and NaN where there are fewer, or none."""
        near, scores = np.full((len(rows), self.k), -1, "<i4"), np.full((len(rows), self.k), np.nan, "<f4")
        assert self.lookup.about.neighbours is not None
        first, stop = self.lookup.about.neighbours["rows"]
        # Neighbours may have been computed for fewer captions than the lookup covers.
        inside = np.flatnonzero((rows >= first) & (rows < stop))
        near[inside], scores[inside], _ = self.lookup.neighbours(rows[inside], self.k, missing="nan")
        return near, scores


def _hash_keys(shard: KeyShard) -> NDArray[np.uint64]:
    return hash_ids([key.encode() for key in shard.read()[0]])
