"""Types that all packages share."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pooling = Literal["paired", "max", "mean", "refs"]
"""How the references of an image become one number."""

Rows = NDArray[np.int32]
"""Rows of the corpus."""

Scores = NDArray[np.float64]
"""Relevance, in the range of its source."""
