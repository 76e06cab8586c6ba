"""The same answers as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.lookup import Lookup

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TorchLookup:
    """A lookup that takes and gives tensors, on the CPU; see Lookup for what each answer means.

    Attributes
    ----------
    lookup : Lookup
    """

    lookup: Lookup

    def block(self, rows: Any, columns: Any = None, pooling: Pooling | None = None) -> Tensor:
        """(B_images, B_captions) float32."""
        return _tensor(self.lookup.block(_array(rows), _array(columns), pooling))

    def same_image(self, rows: Any, columns: Any = None) -> Tensor:
        """(B_images, B_captions) bool."""
        return _tensor(self.lookup.same_image(_array(rows), _array(columns)))

    def neighbours(self, rows: Any, k: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Rows (int32), scores (float32) and same-image marks (bool), each (B, k)."""
        found, scores, same = self.lookup.neighbours(_array(rows), k)
        return _tensor(found), _tensor(scores), _tensor(same)


def _array(rows: Any) -> Any:
    return rows.cpu().numpy() if hasattr(rows, "cpu") else rows


def _tensor(array: np.ndarray[Any, Any]) -> Tensor:
    import torch

    return torch.from_numpy(array)
