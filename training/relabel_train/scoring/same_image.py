"""The baseline: relevance 1 for a caption of the image itself, 0 for any other caption."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def same_image(images: NDArray[np.integer], of_captions: NDArray[np.integer], block: bool = True) -> NDArray[np.bool_]:
    """Mark the captions of the image itself: (B_images, B_captions) bool, or (P,) of P pairs without `block`."""
    return np.asarray((images[:, None] if block else images) == of_captions)
