"""Types used by all packages."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.scoring.references import Pooling

__all__ = ["Pooling", "Queries", "Rows", "Scores"]

Queries = Literal["captions", "images"]
"""Queries of a table of neighbours."""

Rows = NDArray[np.int32]
"""Rows of the corpus."""

Scores = NDArray[np.float64]
"""Relevance, in the stated range of its source."""
