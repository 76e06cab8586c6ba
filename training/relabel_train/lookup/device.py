"""A lookup whose vectors are on a device, where its blocks are computed without a copy through the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.lookup import Lookup
from relabel_train.samplers import Missing
from relabel_train.tensors import full_float32

__all__ = ["DeviceLookup"]

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
        return torch.from_numpy(np.array(array)).to(self.device)
