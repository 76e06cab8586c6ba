"""A lookup with vectors on a device. Its blocks are computed there, without a copy through the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from relabel_train.lookup.rows import LookupRows
from relabel_train.samplers import Missing
from relabel_train.scoring.references import PaddedReferences, Pooling
from relabel_train.tensors import full_float32

__all__ = ["DeviceLookup"]


class DeviceLookup:
    """Relevance and same-image marks by corpus row, from vectors on a device. Made by `Lookup.to`.

    Rows are tensors on the device, or any value that `torch.as_tensor` accepts. Products are computed in float32, also
    of float16 vectors and under autocast.

    Parameters
    ----------
    lookup : Lookup
        Lookup of a label with vectors (kinds `vectors` and `image_vectors`); ValueError for other kinds.
    device : str or torch.device

    Attributes
    ----------
    vectors : (N, D) float32 or float16 tensor
        As in relabel_train.lookup.format.

    Examples
    --------
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> labels = open_lookup(write_lookup("example")).to("cpu")  # or "cuda"
    >>> labels.block([0, 2], pooling="first")
    tensor([[1.0000, 0.8000],
            [0.8000, 1.0000]])
    """

    def __init__(self, lookup: LookupRows, device: str | torch.device) -> None:
        about, arrays = lookup.about, lookup.arrays
        if "vectors" not in arrays:
            hint = "Use `lookup.block`, which computes on the CPU."
            raise ValueError(f"{about.label} ({about.source}) has no vectors to hold on a device. {hint}")
        self.lookup, self.device = lookup, torch.device(device)
        # Copies: a tensor on the CPU would otherwise share the read-only file.
        vectors, image_vectors = np.array(arrays["vectors"]), np.array(arrays.get("image_vectors"))
        self.vectors = torch.from_numpy(vectors).to(self.device)
        self._image_vectors = None if image_vectors.ndim == 0 else torch.from_numpy(image_vectors).to(self.device)

    def __repr__(self) -> str:
        return f"<DeviceLookup on {self.device} of {self.lookup!r}>"

    def block(
        self, rows: Any, columns: Any = None, pooling: Pooling | None = None, missing: Missing = "raise"
    ) -> Tensor:
        """Compute `Lookup.block` on the device, in float32. Parameters and errors are those of `Lookup.block`."""
        lookup, how = self.lookup, self.lookup._pooling(pooling)
        # Numbers of rows are small: they are checked and turned into references on the host.
        images = lookup._positions(_on_host(rows))
        captions = images if columns is None else lookup._positions(_on_host(columns))
        references = lookup._references(images, how)
        failed = [lookup._check_failed(positions, missing) for positions in (references.positions, captions[None])]
        # Autocast of the training loop would multiply labels in half precision.
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False), full_float32():
            right = _unit(self.vectors[captions]).T
            if how == "set":
                assert self._image_vectors is not None, "only a label with vectors of images has this pooling"
                out = _unit(self._image_vectors[lookup.arrays["image"][images]]) @ right
            elif how == "max":
                # One product per reference: the scores of all at a time would need five times the memory.
                out = _unit(self.vectors[references.positions[0]]) @ right
                for one in references.positions[1:]:
                    torch.maximum(out, _unit(self.vectors[one]) @ right, out=out)
            else:
                # A mean of products is a product with the mean.
                out = self._mean(references) @ right
        for axis, mask in enumerate(failed):
            if mask.any():
                out[(slice(None), mask) if axis else mask] = torch.nan
        return out.clamp_(*lookup.about.bounds)

    def _mean(self, references: PaddedReferences) -> Tensor:
        """Return the mean vector of the references of each image: (B, D) float32."""
        counts, (first, *others) = references.counts, references.positions
        total = _unit(self.vectors[first])
        for i, one in enumerate(others, start=1):
            # An image with fewer references repeats its last one; the repetitions do not count.
            counted = slice(None) if counts is None else counts > i
            total[counted] += _unit(self.vectors[one[counted]])
        return total / (1 + len(others) if counts is None else torch.from_numpy(counts).to(self.device)[:, None])

    def same_image(self, rows: Any, columns: Any = None) -> Tensor:
        """Mark the captions of the image itself, by id: (B_images, B_captions) bool tensor on the device."""
        marks = self.lookup.same_image(_on_host(rows), None if columns is None else _on_host(columns))
        return torch.from_numpy(marks).to(self.device)


def _unit(vectors: Tensor) -> Tensor:
    """Return vectors in float32; those of float16 are divided by their lengths, as in `lookup.vectors`."""
    return torch.nn.functional.normalize(vectors.float()) if vectors.dtype == torch.float16 else vectors.float()


def _on_host(rows: Any) -> Any:
    return rows.cpu() if isinstance(rows, Tensor) else rows
