"""Lookups in torch: answers as tensors, and a collate function that adds labels to batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relabel_train.batches.base import Missing
from relabel_train.lookup.format import Pooling
from relabel_train.lookup.lookup import Lookup

if TYPE_CHECKING:
    from torch import Tensor


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
    >>> from relabel_train.lookup.example import write_example
    >>> labels = TorchLookup(open_lookup(write_example(tempfile.mkdtemp())))
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
    >>> from relabel_train.lookup.example import write_example
    >>> collate = RelevanceCollate(open_lookup(write_example(tempfile.mkdtemp())))
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
        # Before the trainer's collate, which may drop ids or stack them into tensors.
        names = [self._name(sample) for sample in samples]
        rows = self.lookup.rows_of(names) if names and isinstance(names[0], str) else names
        labels = TorchLookup(self.lookup)
        added = {
            "relevance": labels.block(rows, None, self.pooling, self.missing),
            "same_image": labels.same_image(rows),
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
