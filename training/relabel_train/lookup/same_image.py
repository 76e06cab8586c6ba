"""The baseline: 1 for a caption of the image itself, 0 for any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.format import Pooling
from relabel_train.lookup.references import Batch


@dataclass(frozen=True, eq=False)
class SameImageBlocks:
    """r = [the caption's image is the image]; `image` is (N,) int32."""

    image: NDArray[np.int32]

    def fill(self, images: Batch, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions)."""
        np.equal(self.image[images.places[0]][:, None], self.image[captions], out=out, casting="unsafe")
