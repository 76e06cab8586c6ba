"""Construction of a side-car from a lookup: one label shard per shard of keys, then an index of all keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.numeric.csr import indptr_of, ranges
from relabel.core.runtime import Progress
from relabel.corpus import Corpus
from relabel.export.params import ExportWdsParams
from relabel.export.wds.keys import KeyShard
from relabel.store.arrays import write_array
from relabel.store.files import write_text
from relabel.store.manifest import Spec
from relabel.store.workdir import Step, Steps, Task, Work
from relabel_train import sidecar
from relabel_train.files import sha256_file
from relabel_train.ids import Ids, hash_ids
from relabel_train.lookup import Lookup

_ABOUT = ("source", "label", "split", "corpus", "bounds", "pooling", "poolings", "references")
"""Entries of a side-car's description that are copied from its lookup."""
_SHOWN = 5  # maximum number of missing keys in a message


@dataclass(frozen=True, eq=False)
class Matches:
    """Images and captions of the K keys of a shard.

    `images`: (K,) int64; image numbers in the lookup, or -1 for a key without a label.
    `indptr`: (K + 1,) int64.
    `captions`: (C,) int64; positions in the lookup. Key i has the captions ``captions[indptr[i]:indptr[i + 1]]``.
    `complete`: whether every key with a label has all captions of its image.
    """

    images: NDArray[np.int64]
    indptr: NDArray[np.int64]
    captions: NDArray[np.int64]
    complete: bool


@dataclass(frozen=True, eq=False)
class SideCarWork:
    """Work on one side-car, with one task per shard.

    `open_lookup`: opens the lookup; called once per worker. `shards`: sorted by name. `keys`: meaning of the keys.
    """

    corpus: Corpus
    open_lookup: Callable[[], Lookup]
    shards: Sequence[KeyShard]
    keys: sidecar.Keys
    params: ExportWdsParams
    artefact: Spec
    progress: Progress

    @cached_property
    def lookup(self) -> Lookup:
        """The opened lookup."""
        return self.open_lookup()

    def steps(self, work: Work) -> Steps:
        """Yield the step of the shards, then write the index of all keys and the description."""
        # Counted first, because keys without a label are an error unless allowed.
        counts, complete = self._count_keys()
        tasks = [Task(shard.name, partial(self._write, shard), len(shard.keys)) for shard in self.shards]
        yield Step("side-car", "keys", tasks, last=True)
        if self.keys != "shard" and self.params.layout == "arrays":
            hashes = np.concatenate([hash_ids(shard.keys.cast(pa.binary()).to_pylist()) for shard in self.shards])
            order = np.argsort(hashes, kind="stable")
            write_array(work, "index.hashes", hashes[order].astype("<u8"))
            write_array(work, "index.order", order.astype("<i8"))
        about, vectors = self.lookup.about, self.lookup.arrays.get("vectors")
        files = {name: sidecar.ShardEntry(*count, sha256_file(work.folder / name)) for name, count in counts.items()}
        shared: dict[str, Any] = {name: getattr(about, name) for name in _ABOUT}
        description = sidecar.SideCarDescription(
            layout=self.params.layout,
            keys=self.keys,
            complete=complete,
            fingerprint=self.artefact.fingerprint,
            lookup=about.fingerprint,
            dtype=None if vectors is None else self.params.dtype,
            width=0 if vectors is None else vectors.shape[1],
            k=self.k,
            shards=files,
            **shared,
        )
        write_text(work.folder / sidecar.DESCRIPTION, description.to_json())
        totals = np.sum(list(counts.values()), axis=0).tolist()
        work.metadata |= dict(zip(("keys", "captions", "missing"), totals, strict=True))
        work.metadata |= {"shards": len(self.shards), "meaning of keys": self.keys, "layout": self.params.layout}
        work.metadata |= {"label": about.label, "split": about.split, "dtype": description.dtype, "k": self.k}

    def _count_keys(self) -> tuple[dict[str, tuple[int, int, int]], bool]:
        """Return the numbers of keys, captions and missing keys per shard, and `Matches.complete` of all shards."""
        counts, missing, complete = dict[str, tuple[int, int, int]](), list[str](), True
        total = sum(len(shard.keys) for shard in self.shards)
        with self.progress.bar("match keys", total, "keys") as bar:
            for shard in self.shards:
                matches = self._match(shard)
                absent = np.flatnonzero(matches.images < 0)
                for i in absent[: _SHOWN - len(missing)]:
                    by = "" if self.params.join == "key" else f"{self.params.join} {shard.ids[i]}, "
                    missing.append(f"{shard.keys[i]} ({by}{shard.name})")
                counts[shard.name] = len(shard.keys), len(matches.captions), len(absent)
                complete &= matches.complete
                bar.advance(len(shard.keys))
        if missing and not self.params.allow_missing:
            absences = sum(count for _, _, count in counts.values())
            message = f"{absences:,} of {total:,} keys have no encoded caption in split "
            column = "" if self.params.join == "key" else f" with --image-id-column {self.params.join}"
            raise CheckError(
                f"{message}{self.lookup.about.split}; first {', '.join(missing)}",
                where=self.params.shards or str(self.lookup.folder),
                hint=f"Ingest{column} and encode the captions of these shards, choose another --split, --keys or "
                "--join, or pass --allow-missing to mark and count such keys.",
            )
        return counts, complete

    def _match(self, shard: KeyShard) -> Matches:
        """Find the captions of a shard's keys by id."""
        arrays, ids = self.lookup.arrays, shard.ids.to_pylist()
        if self.keys == "caption":
            first = Ids.open(arrays, "caption_ids").positions(ids)
            images, sizes = np.where(first < 0, -1, arrays["image"][first]), np.where(first < 0, 0, 1)
        else:
            images = Ids.open(arrays, "image_ids").positions(ids)
            first = arrays["indptr"][images]
            sizes = np.where(images < 0, 0, arrays["indptr"][images + 1] - first)
        captions = ranges(first, sizes)
        # Exclude captions without an encoding; their vectors would be NaN.
        usable = ~self.lookup.failed[captions]
        indptr = indptr_of(usable.astype(np.int64))[indptr_of(sizes)]
        counts = np.diff(indptr)
        images = np.where(counts > 0, images, -1)
        complete = bool((counts == np.diff(arrays["indptr"])[images])[images >= 0].all())
        return Matches(images, indptr, captions[usable], complete)

    @property
    def k(self) -> int:
        """Number of neighbours per caption; 0 if the lookup has none."""
        neighbours = self.lookup.about.neighbours
        return 0 if neighbours is None else min(self.params.k, int(neighbours["width"]))

    def _write(self, shard: KeyShard, path: Path) -> None:
        labels = self._labels(shard)
        with path.open("wb") as file:
            sidecar.write_tar(file, _arrays(labels) if self.params.layout == "arrays" else _samples(labels))

    def _labels(self, shard: KeyShard) -> dict[str, Any]:
        """Return the texts and arrays of a shard; see relabel_train.sidecar."""
        lookup, corpus, matches = self.lookup, self.corpus, self._match(shard)
        captions, labelled = matches.captions, matches.images >= 0
        rows = (captions + lookup.rows.start).astype("<i4")
        images = np.where(labelled, matches.images + corpus.image[lookup.rows.start], -1).astype("<i4")
        names = corpus.table["image_id"].take(pa.array(corpus.indptr[np.maximum(images, 0)]))
        texts: dict[str, list[str]] = {
            "keys": shard.keys.to_pylist(),
            "image_ids": pc.if_else(pa.array(labelled), names, "").to_pylist(),
            "caption_ids": corpus.table["caption_id"].take(pa.array(rows)).to_pylist(),
        }
        arrays: dict[str, NDArray[Any]] = {"indptr": matches.indptr.astype("<i8"), "images": images, "rows": rows}
        for name, index in (("vectors", captions), ("image_vectors", matches.images)):
            if name in lookup.arrays:
                vectors = np.where((index >= 0)[:, None], lookup.arrays[name][index], 0)
                arrays[name] = vectors.astype(np.dtype(self.params.dtype).newbyteorder("<"))
        if self.k:
            near, scores = self._neighbours(rows)
            distinct, numbers = np.unique(near[near >= 0], return_inverse=True)
            near[near >= 0] = numbers.reshape(-1)
            arrays |= {"neighbours": near, "scores": scores, "neighbour_rows": distinct.astype("<i4")}
            texts["neighbour_ids"] = corpus.table["caption_id"].take(pa.array(distinct)).to_pylist()
        return texts | arrays

    def _neighbours(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the k best neighbours of captions and their scores, padded with -1 and NaN."""
        near, scores = np.full((len(rows), self.k), -1, "<i4"), np.full((len(rows), self.k), np.nan, "<f4")
        assert self.lookup.about.neighbours is not None
        first, stop = self.lookup.about.neighbours["rows"]
        # The neighbours may cover fewer captions than the lookup.
        inside = np.flatnonzero((rows >= first) & (rows < stop))
        near[inside], scores[inside], _ = self.lookup.neighbours(rows[inside], self.k, missing="nan")
        return near, scores


def _arrays(labels: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the tar members of a shard with layout `arrays`."""
    for name, value in labels.items():
        if isinstance(value, list):
            yield f"{sidecar.PREFIX}{name}.json", sidecar.json_member(value)
        else:
            yield f"{sidecar.PREFIX}{name}.npy", sidecar.npy_member(value)


def _samples(labels: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the tar members of a shard with layout `samples`: `KEY.labels.json`, and `KEY.vectors.npy` if any."""
    shard = sidecar.ShardLabels(labels)
    for i, key in enumerate(shard.keys):
        # webdataset ends a key at the first dot of the name.
        if "." in key.rpartition("/")[2]:
            hint = "Use --layout arrays, which supports any key."
            raise UsageError(f"the key {key} has a dot, and webdataset would cut it there", hint=hint)
        sample = shard.sample(i, neighbours=True)
        if sample is None:
            yield f"{key}.{sidecar.PREFIX}json", sidecar.json_member({"missing": True})
            continue
        texts = {"image_id": sample.image_id, "image_row": sample.image_row, "caption_ids": sample.caption_ids}
        body: dict[str, Any] = {**texts, "caption_rows": sample.caption_rows.tolist()}
        if sample.neighbour_ids is not None:
            body |= {"neighbour_ids": sample.neighbour_ids, "neighbour_scores": sample.neighbour_scores}
        yield f"{key}.{sidecar.PREFIX}json", sidecar.json_member(body)
        if sample.vectors is not None:
            yield f"{key}.vectors.npy", sidecar.npy_member(sample.vectors)
        if sample.image_vector is not None:
            yield f"{key}.image_vector.npy", sidecar.npy_member(sample.image_vector)
