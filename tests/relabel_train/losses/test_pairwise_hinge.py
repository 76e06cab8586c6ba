"""Contract: sorted counting equals loops over all pairs in value, number of pairs and gradient, with many ties."""

from __future__ import annotations

import random

import pytest
import torch

from relabel_train.losses.pairwise_hinge import hinge_ranked


@pytest.mark.parametrize("length", [1, 2, 5, 16, 23])
@pytest.mark.parametrize(("gap", "margin"), [(0.0, 0.0), (0.2, 0.0), (0.0, 0.03), (0.5, 0.25)])
def test_ranked_hinges_equal_loops(length: int, gap: float, margin: float) -> None:
    rng = random.Random(length)
    steps = [k / 8 for k in range(-8, 9)]  # exact in binary, hence exact ties and edges
    s, above, below = (
        [[rng.choice([*steps, *more]) for _ in range(length)] for _ in range(3)]
        for more in ([], [-float("inf")], [float("inf")])
    )
    scores, *labels = (torch.tensor(table, dtype=torch.float64) for table in (s, above, below))
    value, pairs = hinge_ranked(scores.requires_grad_(), *labels, gap, margin)
    (slope,) = torch.autograd.grad(value.sum(), scores)
    for q in range(3):
        total, count, gradient = 0.0, 0, [0] * length
        for j in range(length):
            for k in range(length):
                if above[q][j] > below[q][k] + gap:
                    count += 1
                    if s[q][k] - s[q][j] + margin > 0:
                        total += s[q][k] - s[q][j] + margin
                        gradient[k] += 1
                        gradient[j] -= 1
        assert (value[q].item(), pairs[q].item()) == (pytest.approx(total, abs=1e-9), count)
        assert slope[q].tolist() == gradient


def test_float32_edges_are_decided_consistently() -> None:
    """Check differences that round differently from either end: value and gradient equal those of the pairs."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(8, 200, generator=generator).requires_grad_()
    labels = torch.randint(0, 50, (8, 200), generator=generator) * 0.1  # not exact in binary
    value, pairs = hinge_ranked(scores, labels, labels, 0.2, 0.01)
    counted = labels[:, :, None] > labels[:, None, :] + 0.2
    hinges = (scores[:, None, :] + 0.01 - scores[:, :, None]).clamp(min=0).double()
    assert torch.equal(pairs, counted.sum(dim=(1, 2)))
    torch.testing.assert_close(value.double(), (hinges * counted).sum(dim=(1, 2)), rtol=1e-5, atol=0)
    (slope,) = torch.autograd.grad(value.sum(), scores)
    torch.testing.assert_close(slope.sum(dim=1), torch.zeros(8))
