"""Types used by all packages."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.scoring.references import Pooling

__all__ = ["Pooling", "Queries", "Rows", "Scores"]

Queries = Literal["captions", "images"]
"""Kind of queries of a neighbour table."""

Rows = NDArray[np.int32]
"""Row numbers of captions in the corpus."""

Scores = NDArray[np.float64]
"""Relevance values in the range of their source."""
