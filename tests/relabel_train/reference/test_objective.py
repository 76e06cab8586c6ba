"""Contract: a training names a loss and its parameters as {name: NAME, PARAMETER: VALUE}, or a list of them for a sum.
Every loss gets the inputs that it is defined on, and mistakes are named.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from relabel_train import losses
from relabel_train.losses import LOSSES, DenseTripletLoss, LogRatioLoss, SmoothNDCGLoss, TripletLoss
from relabel_train.reference.data import Labels
from relabel_train.reference.objective import PARAMETERS, Objective
from relabel_train.reference.options import FitError

ALL = Labels._fields


@pytest.fixture
def batch() -> tuple[Any, ...]:
    """Return the arguments of an objective: scores, images, captions and labels."""
    torch.manual_seed(0)
    images, captions = (normalize(torch.randn(6, 4), dim=1).requires_grad_() for _ in range(2))
    relevance = torch.rand(6, 6).fill_diagonal_(1)
    between = [(one + one.T) / 2 for one in (relevance, torch.rand(6, 6))]
    return images @ captions.T, images, captions, Labels(torch.eye(6) > 0, relevance, *between)


def test_every_loss_has_a_name_and_trains(batch: tuple[Any, ...]) -> None:
    bases = {"CombinedLoss", "DistanceLoss", "Reduction", "RelevanceLoss"}
    assert {loss.__name__ for loss in LOSSES.values()} == set(losses.__all__) - bases
    for name in LOSSES:
        objective = Objective(name)
        objective.check_labels(ALL, 0, 1)
        value = objective(*batch)
        assert torch.isfinite(value)
        for gradient in torch.autograd.grad(value, batch[1:3], retain_graph=True):
            assert gradient.abs().sum() > 0, name


def test_defaults_are_those_of_the_class() -> None:
    for name, parameters in PARAMETERS.items():
        assert repr(parameters(name=name).make()) == repr(LOSSES[name]()), name


def test_a_sum_weighs_its_losses(batch: tuple[Any, ...]) -> None:
    triplet = {"name": "triplet", "margin": 0.1, "negatives": "sum"}
    labels = batch[3]
    inputs = batch[0], labels.relevance, labels.same_image
    alone, listwise = TripletLoss(0.1, "sum")(*inputs), SmoothNDCGLoss()(*inputs)
    torch.testing.assert_close(Objective(triplet)(*batch), alone)
    both = Objective([{**triplet, "factor": 0.5}, {"name": "smooth_ndcg"}])
    torch.testing.assert_close(both(*batch), alone / 2 + listwise)


@pytest.mark.parametrize(("name", "loss"), [("log_ratio", LogRatioLoss()), ("dense_triplet", DenseTripletLoss())])
def test_losses_of_embeddings_apply_to_each_kind_that_has_labels(
    name: str, loss: torch.nn.Module, batch: tuple[Any, ...]
) -> None:
    """Check the loss alone, of the first item as the anchor, and the settings `anchors` and `triplet`."""
    scores, *vectors, labels = batch
    for anchors, count in ((1, 1), (4, 4), (0, 6)):
        of_images, of_captions = (
            loss(x, 1.5 - r[:count], labels.same_image[:count])
            for x, r in zip(vectors, (labels.between_images, labels.between_captions), strict=True)
        )
        objective = Objective({"name": name, "anchors": anchors}, top=1.5)
        torch.testing.assert_close(objective(*batch), of_images + of_captions)
        images_only = labels._replace(between_captions=None)
        torch.testing.assert_close(objective(scores, *vectors, images_only), of_images)
        tied = Objective({"name": name, "anchors": anchors, "triplet": 0.5}, top=1.5)
        triplet = TripletLoss(reduction="mean")(scores, None, labels.same_image)
        torch.testing.assert_close(tied(*batch), of_images + of_captions + triplet / 2)


@pytest.mark.parametrize(
    ("loss", "given", "low", "said"),
    [
        ("bcls", (), 0, "bcls reads labels of pairs: give --lookup"),
        ("dense_triplet", ["relevance"], 0, "dense_triplet .*--items images"),
        ([{"name": "log_ratio"}, {"name": "bcls"}], ["between_images"], 0, "^bcls reads labels of pairs"),
        ("graded_sigmoid", ALL, -1, r"graded_sigmoid .* 0\.\.1, .* -1\.\.1"),
    ],
)
def test_labels_that_a_loss_cannot_read_are_named(loss: Any, given: Any, low: float, said: str) -> None:
    Objective([{"name": "log_ratio"}, {"name": "triplet"}]).check_labels(["between_images"], -1, 1)
    with pytest.raises(FitError, match=said):
        Objective(loss).check_labels(given, low, 1)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("bclss", "no loss 'bclss'; there are triplet, .*bcls"),
        ({"name": "triplet", "marign": 1}, "loss triplet: marign: .* parameters are .*margin"),
        ({"name": "triplet", "margin": "wide"}, "loss triplet: margin: .*number"),
        ({"name": "triplet", "negatives": "most"}, "loss triplet: negatives: "),
        ({"name": "triplet", "margin": -1}, "triplet: margin is -1"),
        ({"name": "triplet", "anchors": 1}, "loss triplet: anchors: "),
        ({"name": "triplet", "factor": float("inf")}, "loss triplet: factor: "),
    ],
)
def test_mistakes_are_named(loss: Any, said: str) -> None:
    with pytest.raises(FitError, match=said):
        Objective(loss)
