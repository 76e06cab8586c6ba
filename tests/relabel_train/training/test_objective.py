"""Contract: all twelve losses by name, with parameters and weights, get the inputs that they are defined on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from relabel_train import losses
from relabel_train.losses import DenseTripletLoss, LogRatioLoss, SmoothNDCGLoss, TripletLoss
from relabel_train.training.objective import LOSSES, Objective, Pairs
from relabel_train.training.options import FitError


def pairs(b: int = 6) -> Pairs:
    torch.manual_seed(0)
    images, captions = normalize(torch.randn(b, 4), dim=1), normalize(torch.randn(b, 4), dim=1)
    images.requires_grad_(), captions.requires_grad_()
    relevance = torch.rand(b, b).fill_diagonal_(1)
    return Pairs(images @ captions.T, images, captions, relevance, (relevance + relevance.T) / 2, torch.eye(b) > 0)


def test_every_loss_file_has_its_name() -> None:
    shared = {"__init__", "base", "validation", "combined", "distance_base", "pairwise_hinge"}
    files = {path.stem for path in Path(losses.__file__).parent.glob("*.py")} - shared
    assert set(LOSSES) == files
    assert len(LOSSES) == 12


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains(name: str) -> None:
    given = pairs()
    value = Objective([name])(given)
    value.backward()
    assert torch.isfinite(value)
    for vectors in (given.images, given.captions):
        assert vectors.grad is not None
        assert vectors.grad.abs().sum() > 0


def test_weights_and_parameters() -> None:
    given = pairs()
    objective = Objective(["triplet:0.5", "smooth_ndcg"], ["triplet.margin=0.1", "triplet.negatives=sum"])
    triplet = TripletLoss(0.1, "sum")(given.scores, given.relevance, given.same_image)
    listwise = SmoothNDCGLoss()(given.scores, given.relevance, given.same_image)
    torch.testing.assert_close(objective(given), triplet / 2 + listwise)
    torch.testing.assert_close(sum(objective.terms(given).values()), objective(given))
    alone = Objective(["triplet"], ["margin=0.1", "negatives=sum"])
    torch.testing.assert_close(alone(given), triplet)
    assert not alone.needs_relevance
    assert objective.needs_relevance
    assert not objective.needs_paired


@pytest.mark.parametrize(("name", "loss"), [("log_ratio", LogRatioLoss()), ("dense_triplet", DenseTripletLoss())])
def test_losses_of_embeddings_order_each_kind_and_a_triplet_ties_them(name: str, loss: torch.nn.Module) -> None:
    given = pairs()
    assert given.relevance is not None
    assert given.paired is not None
    found = Objective([name], top=1.5)
    assert found.needs_paired
    symmetric = (given.relevance + given.relevance.T) / 2
    wanted = loss(given.images, 1.5 - symmetric, given.same_image) + loss(
        given.captions, 1.5 - given.paired, given.same_image
    )
    wanted = wanted + TripletLoss(reduction="mean")(given.scores, None, given.same_image)
    torch.testing.assert_close(found(given), wanted)


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (["bclss"], [], "no loss 'bclss'; there are triplet"),
        (["triplet"], ["marign=1"], "triplet has no parameter marign; it has margin"),
        (["triplet"], ["margin=-1"], "triplet: margin is -1"),
        (["triplet", "bcls"], ["margin=1"], "write LOSS.PARAMETER=VALUE"),
        (["triplet"], ["bcls.margin=1"], "one of triplet"),
        (["triplet:x"], [], "'x' is no weight"),
        (["triplet"], ["margin"], "expected NAME=VALUE"),
        ([], [], "no loss"),
    ],
)
def test_mistakes_are_named(names: list[str], given: list[str], said: str) -> None:
    with pytest.raises(FitError, match=said):
        Objective(names, given)
