"""Irregular data: ties in scores and labels, captions in random order and number, some without an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray


@dataclass(frozen=True)
class Case:
    """(M, N) scores and labels, and the image of each caption, -1 for none."""

    scores: NDArray[np.float64]
    labels: NDArray[np.float64]
    image: NDArray[np.int64]

    def lists(self, direction: str) -> list[tuple[list[float], list[float], list[int]]]:
        """Return scores, labels and own items of each query as lists."""
        scores, labels = (self.scores, self.labels) if direction == "i2t" else (self.scores.T, self.labels.T)
        image = self.image.tolist()
        captions_of = [[j for j, i in enumerate(image) if i == q] for q in range(len(self.scores))]
        if direction == "t2i":
            captions_of = [[i] if i >= 0 else [] for i in image]
        return [(s, r, o) for s, r, o in zip(scores.tolist(), labels.tolist(), captions_of, strict=True)]


def make_case(seed: int, images: int = 12, captions: int = 37) -> Case:
    """Make a case; odd seeds have numbers beyond float32, image 3 has no caption, captions 5 and 20 have no image."""
    generator = np.random.default_rng(seed)
    grid = 7.0 if seed % 2 else 8.0
    scores = generator.integers(-6, 9, (images, captions)) / grid
    labels = np.clip(generator.integers(-4, 9, (images, captions)), 0, None) / (9.0 if seed % 2 else 8.0)
    image = generator.integers(0, images, captions)
    image[image == 3] = 4
    image[[5, 20]] = -1
    image[:4] = [7, 2, 7, 0]  # images in random order
    scores[1, :] = 0.5
    scores[:, 9] = -0.25
    labels[2, :] = 0.0  # constant labels, none above 0
    labels[:, 11] = 0.0
    scores[6, 3] = -np.inf
    scores[0, 0] = -0.0
    scores[0, 1] = 0.0
    return Case(scores, labels, image)


@pytest.fixture(params=[0, 1, 2, 3])
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param)
