"""Contract: all thirteen losses are available by name, with parameters and weights, and get the inputs that they are
defined on.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from relabel_train.losses import DenseTripletLoss, LogRatioLoss, SmoothNDCGLoss, TripletLoss
from relabel_train.reference.objective import LOSSES, Objective, Pairs
from relabel_train.reference.options import FitError


def pairs(b: int = 6) -> Pairs:
    torch.manual_seed(0)
    images, captions = normalize(torch.randn(b, 4), dim=1), normalize(torch.randn(b, 4), dim=1)
    images.requires_grad_(), captions.requires_grad_()
    relevance = torch.rand(b, b).fill_diagonal_(1)
    return Pairs(images @ captions.T, images, captions, relevance, (relevance + relevance.T) / 2, torch.eye(b) > 0)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains(name: str) -> None:
    batch = pairs()
    value = Objective([name])(batch)
    value.backward()
    assert torch.isfinite(value)
    for vectors in (batch.images, batch.captions):
        assert vectors.grad is not None
        assert vectors.grad.abs().sum() > 0


def test_weights_and_parameters() -> None:
    batch = pairs()
    objective = Objective(["triplet:0.5", "smooth_ndcg"], ["triplet.margin=0.1", "triplet.negatives=sum"])
    triplet = TripletLoss(0.1, "sum")(batch.scores, batch.relevance, batch.same_image)
    listwise = SmoothNDCGLoss()(batch.scores, batch.relevance, batch.same_image)
    torch.testing.assert_close(objective(batch), triplet / 2 + listwise)
    torch.testing.assert_close(sum(objective.terms(batch).values()), objective(batch))
    alone = Objective(["triplet"], ["margin=0.1", "negatives=sum"])
    torch.testing.assert_close(alone(batch), triplet)
    assert not alone.needs_relevance
    assert objective.needs_relevance
    assert not objective.needs_paired


@pytest.mark.parametrize(("name", "loss"), [("log_ratio", LogRatioLoss()), ("dense_triplet", DenseTripletLoss())])
def test_losses_of_embeddings_apply_to_each_kind_with_a_triplet(name: str, loss: torch.nn.Module) -> None:
    batch = pairs()
    assert batch.relevance is not None
    assert batch.paired is not None
    objective = Objective([name], top=1.5)
    assert objective.needs_paired
    symmetric = (batch.relevance + batch.relevance.T) / 2
    expected = loss(batch.images, 1.5 - symmetric, batch.same_image) + loss(
        batch.captions, 1.5 - batch.paired, batch.same_image
    )
    expected = expected + TripletLoss(reduction="mean")(batch.scores, None, batch.same_image)
    torch.testing.assert_close(objective(batch), expected)


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (["bclss"], [], "no loss 'bclss'; there are triplet"),
        (["triplet"], ["marign=1"], "triplet has no parameter marign; it has margin"),
        (["triplet"], ["margin=-1"], "triplet: margin is -1"),
        (["triplet", "bcls"], ["margin=1"], "write LOSS.PARAMETER=VALUE"),
        (["triplet"], ["bcls.margin=1"], "one of triplet"),
        (["triplet"], ["margin"], "expected NAME=VALUE"),
        ([], [], "no loss"),
    ],
)
def test_usage_errors_are_named(names: list[str], given: list[str], said: str) -> None:
    with pytest.raises(FitError, match=said):
        Objective(names, given)
