"""Lookups in torch: answers as tensors, a collate function that adds labels to batches, and vectors on a device.

A `DeviceLookup` computes blocks where its vectors are, without a copy through the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.lookup import Lookup
from relabel_train.samplers import Missing

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_CELLS = 1 << 23
"""Largest number of scores of single references in memory beside the result."""


class DeviceLookup:
    """Relevance and same-image marks by corpus row, from vectors on a device. Made by `Lookup.to`.

    Rows are tensors on the device, or anything that `torch.as_tensor` takes. Products are computed in float32, also of
    float16 vectors and under autocast.

    Parameters
    ----------
    lookup : Lookup
        Of a label with vectors (kinds `vectors` and `image_vectors`).
    device : str or torch.device

    Attributes
    ----------
    lookup : Lookup
    device : torch.device
    vectors : (N, D) float32 or float16 tensor
        As in relabel_train.lookup.format.

    Raises
    ------
    ValueError
        If the label has no vectors.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> labels = open_lookup(write_lookup(tempfile.mkdtemp())).to("cpu")  # or "cuda"
    >>> labels.block(torch.tensor([0, 2]), pooling="paired")
    tensor([[1.0000, 0.8000],
            [0.8000, 1.0000]])
    """

    def __init__(self, lookup: Lookup, device: str | torch.device) -> None:
        import torch

        about, arrays = lookup.about, lookup.arrays
        if "vectors" not in arrays:
            todo = "Use `lookup.block`, which computes on the CPU."
            raise ValueError(f"{about.label} ({about.source}) has no vectors to hold on a device. {todo}")
        self.lookup, self.device = lookup, torch.device(device)
        self.vectors = self._copy(arrays["vectors"])
        self._image_vectors = self._copy(arrays["image_vectors"]) if "image_vectors" in arrays else None
        self._image, self._indptr = self._copy(arrays["image"]).long(), self._copy(arrays["indptr"])
        self._failed = self._copy(lookup.failed) if about.failed else None

    def __repr__(self) -> str:
        return f"<DeviceLookup on {self.device} of {self.lookup!r}>"

    def block(
        self, rows: Any, columns: Any = None, pooling: Pooling | None = None, missing: Missing = "raise"
    ) -> Tensor:
        """Return the relevance of images (rows) and captions (columns) as `Lookup.block` does.

        Parameters
        ----------
        rows : (B_images,) int
        columns : (B_captions,) int, optional
            `rows` by default.
        pooling : Pooling, optional
        missing : "raise" or "nan"

        Returns
        -------
        (B_images, B_captions) float32 tensor on the device

        Raises
        ------
        IndexError
            If a row is not covered.
        ValueError
            If the label does not support the pooling, or a caption or a reference of an image has no encoding.
        """
        import torch

        from relabel_train.tensors import full_float32

        about = self.lookup.about
        how = pooling or about.pooling
        if how not in about.poolings:
            fine = ", ".join(about.poolings)
            raise ValueError(f"{about.label} ({about.source}) has no pooling {how!r}. Use one of {fine}.")
        images = self._positions(rows)
        captions = images if columns is None else self._positions(columns)
        references, sizes = self._references(images, how)
        if missing == "raise":
            self._refuse_failed(torch.cat((references.reshape(-1), captions)))
        # Autocast of the training loop would multiply labels in half precision.
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False), full_float32():
            right = self.vectors[captions].float().T
            out = torch.empty(len(images), len(captions), device=self.device)
            if how == "refs":
                assert self._image_vectors is not None, "only a label with vectors of images has this pooling"
                torch.mm(self._image_vectors[self._image[images]].float(), right, out=out)
            elif how != "max" or len(references) == 1:
                torch.mm(self._mean(references, sizes), right, out=out)
            else:
                self._fill_max(references, right, out)
            if self._failed is not None:
                out[self._failed[references].any(dim=0)] = torch.nan
        return out

    def _fill_max(self, references: Tensor, right: Tensor, out: Tensor) -> None:
        """Fill `out`, (B_images, B_captions), with the best of the references of each image, (W, B_images)."""
        import torch

        # One product per reference into the same memory: the scores of all references would need five times that.
        step = max(1, _CELLS // max(1, right.shape[1]))
        for a in range(0, len(out), step):
            best = out[a : a + step]
            torch.mm(self.vectors[references[0, a : a + step]].float(), right, out=best)
            for one in references[1:, a : a + step]:
                torch.maximum(best, self.vectors[one].float() @ right, out=best)

    def same_image(self, rows: Any, columns: Any = None) -> Tensor:
        """Mark the captions of the image itself, by id: (B_images, B_captions) bool tensor on the device."""
        left = self._image[self._positions(rows)]
        right = left if columns is None else self._image[self._positions(columns)]
        return left[:, None] == right

    def _references(self, images: Tensor, how: Pooling) -> tuple[Tensor, Tensor]:
        """Return the references of B images, (W, B), and their number, (B,); an image repeats its last one."""
        import torch

        if how == "paired":
            return images[None], torch.ones_like(images)
        owner = self._image[images]
        first = self._indptr[owner]
        sizes = (self._indptr[owner + 1] - first).clamp(max=self.lookup.about.references)
        steps = torch.arange(int(sizes.max()) if len(sizes) else 1, device=self.device)[:, None]
        # A repeated reference changes no maximum; a mean leaves it out by `sizes`.
        return first + torch.minimum(steps, sizes - 1), sizes

    def _mean(self, references: Tensor, sizes: Tensor) -> Tensor:
        """Return the mean vector of the references of each image: (B, D) float32."""
        import torch

        total = self.vectors[references[0]].float()
        if len(references) == 1:
            return total
        for i, one in enumerate(references[1:], start=1):
            # `where` and not a product with 0, which would keep the NaN of a caption without an encoding.
            total += torch.where((sizes > i)[:, None], self.vectors[one].float(), 0.0)
        return total / sizes[:, None]

    def _refuse_failed(self, positions: Tensor) -> None:
        """Raise for captions without an encoding."""
        if self._failed is not None and (failed := positions[self._failed[positions]]).numel():
            row = int(failed[0]) + self.lookup.rows.start
            name = self.lookup.caption_ids([row])[0]
            todo = "Draw from `lookup.captions()`, which leaves such captions out, or ask for missing='nan'."
            raise ValueError(f"{self.lookup.about.label}: caption {name} (row {row}) has no encoding. {todo}")

    def _positions(self, rows: Any) -> Tensor:
        """Return positions of corpus rows on the device, after a check that all are covered."""
        import torch

        positions: Tensor = torch.as_tensor(rows, device=self.device).long() - self.lookup.rows.start
        # One comparison on the device: an index out of range would end a CUDA process.
        outside = (positions < 0) | (positions >= len(self.lookup))
        if outside.any():
            covered = self.lookup.rows
            row = int(positions[outside][0]) + covered.start
            raise IndexError(f"row {row} is not among rows {covered.start} to {covered.stop - 1} of {self.lookup!r}")
        return positions

    def _copy(self, array: np.ndarray[Any, Any]) -> Tensor:
        """Copy an array to the device; a tensor on the CPU would otherwise share the read-only file."""
        import torch

        return torch.from_numpy(np.array(array)).to(self.device)


@dataclass(frozen=True)
class TorchLookup:
    """A lookup that takes and returns tensors on the CPU; parameters and errors are those of Lookup.

    Attributes
    ----------
    lookup : Lookup

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from relabel_train.lookup import TorchLookup, open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> labels = TorchLookup(open_lookup(write_lookup(tempfile.mkdtemp())))
    >>> labels.block(torch.tensor([0, 2]), pooling="paired")
    tensor([[1.0000, 0.8000],
            [0.8000, 1.0000]])
    """

    lookup: Lookup

    def block(
        self, rows: Any, columns: Any = None, pooling: Pooling | None = None, missing: Missing = "raise"
    ) -> Tensor:
        """Return the exact relevance of images and captions: (B_images, B_captions) float32."""
        return _tensor(self.lookup.block(_array(rows), _array(columns), pooling, missing=missing))

    def same_image(self, rows: Any, columns: Any = None) -> Tensor:
        """Mark the captions of the image itself: (B_images, B_captions) bool."""
        return _tensor(self.lookup.same_image(_array(rows), _array(columns)))

    def neighbours(self, rows: Any, k: int | None = None, missing: Missing = "raise") -> tuple[Tensor, Tensor, Tensor]:
        """Return the k nearest captions: rows (int32), scores (float32) and same-image marks (bool), each (B, k)."""
        near, scores, same = self.lookup.neighbours(_array(rows), k, missing)
        return _tensor(near), _tensor(scores), _tensor(same)


@dataclass(frozen=True)
class RelevanceCollate:
    """Collate B samples and add their (B, B) labels, for `DataLoader(collate_fn=...)` and HF's `data_collator`.

    Row i of `relevance` is the image of sample i, column j the caption of sample j. `same_image` marks, by id, the
    cells whose caption belongs to the image.

    Attributes
    ----------
    lookup : Lookup
    collate : callable, optional
        The trainer's collate function; torch's `default_collate` by default. A mapping gets the labels under their
        names, a tuple or list at its end.
    key : str, int or callable
        Key of a sample's caption id (a string, `coco:770337`) or corpus row (an int), or a function of the sample.
    pooling : Pooling, optional
        The label's default if omitted.
    keep : bool
        Keep the key in samples that are mappings; False hides it from a `collate` that accepts only numbers.
    missing : "raise" or "nan"
        Raise for captions without an encoding, or give them NaN.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.lookup import RelevanceCollate, open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> collate = RelevanceCollate(open_lookup(write_lookup(tempfile.mkdtemp())))
    >>> batch = collate([{"caption_id": "coco:11", "image": 0.5}, {"caption_id": "coco:12", "image": 0.7}])
    >>> sorted(batch), batch["same_image"].tolist()
    (['caption_id', 'image', 'relevance', 'same_image'], [[True, True], [True, True]])
    """

    lookup: Lookup
    collate: Callable[[list[Any]], Any] | None = None
    key: str | int | Callable[[Any], str | int] = "caption_id"
    pooling: Pooling | None = None
    keep: bool = True
    missing: Missing = "raise"

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Collate samples and add `relevance` and `same_image`.

        Raises
        ------
        KeyError, IndexError
            If a caption is not covered, as Lookup raises them.
        ValueError
            If a caption has no encoding and `missing` is "raise", naming it.
        TypeError
            If the trainer's batch is neither a mapping nor a tuple or list.
        """
        from relabel_train.tensors import sendable

        # Before the trainer's collate, which may drop ids or stack them into tensors.
        names = [self._name(sample) for sample in samples]
        rows = self.lookup.rows_of(names) if names and isinstance(names[0], str) else names
        labels = TorchLookup(self.lookup)
        added = {
            "relevance": sendable(labels.block(rows, None, self.pooling, self.missing)),
            "same_image": sendable(labels.same_image(rows)),
        }
        batch = self._collate()(self._without_key(samples))
        if isinstance(batch, Mapping):
            for name, value in added.items():
                batch[name] = value  # type: ignore[index]  # a BatchEncoding stays one
            return batch
        if isinstance(batch, tuple | list):
            return (*batch, *added.values())
        raise TypeError(f"cannot add labels to a batch that is a {type(batch).__name__}; collate to a dict or tuple")

    def _name(self, sample: Any) -> Any:
        """Return the caption id or row of a sample."""
        return self.key(sample) if callable(self.key) else sample[self.key]

    def _without_key(self, samples: Sequence[Any]) -> list[Any]:
        """Return the samples as the trainer's collate gets them."""
        if self.keep or callable(self.key):
            return list(samples)
        return [{k: v for k, v in s.items() if k != self.key} if isinstance(s, Mapping) else s for s in samples]

    def _collate(self) -> Callable[[list[Any]], Any]:
        """Return the trainer's collate function, or torch's."""
        if self.collate is not None:
            return self.collate
        from torch.utils.data import default_collate

        return default_collate


def _array(rows: Any) -> Any:
    return rows.cpu().numpy() if hasattr(rows, "cpu") else rows


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    import torch

    return torch.from_numpy(array)
