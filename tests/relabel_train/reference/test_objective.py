"""Contract: all thirteen losses are available by name, with parameters and weights, and get the inputs that they are
defined on.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from relabel_train import losses
from relabel_train.losses import DenseTripletLoss, LogRatioLoss, SmoothNDCGLoss, TripletLoss
from relabel_train.reference.objective import LOSSES, Objective, Pairs
from relabel_train.reference.options import FitError, parse_settings


@pytest.fixture
def batch() -> Pairs:
    torch.manual_seed(0)
    images, captions = (normalize(torch.randn(6, 4), dim=1).requires_grad_() for _ in range(2))
    relevance = torch.rand(6, 6).fill_diagonal_(1)
    between = [(one + one.T) / 2 for one in (relevance, torch.rand(6, 6))]
    return Pairs(images @ captions.T, images, captions, relevance, *between, torch.eye(6) > 0)


def test_every_loss_has_a_name_and_trains(batch: Pairs) -> None:
    bases = {"CombinedLoss", "DistanceLoss", "Reduction", "RelevanceLoss"}
    assert {loss.__name__ for loss in LOSSES.values()} == set(losses.__all__) - bases
    for name in LOSSES:
        value = Objective([name])(batch)
        assert torch.isfinite(value)
        for gradient in torch.autograd.grad(value, (batch.images, batch.captions), retain_graph=True):
            assert gradient.abs().sum() > 0, name


def test_weights_and_parameters(batch: Pairs) -> None:
    objective = Objective(["triplet:0.5", "smooth_ndcg"], ["triplet.margin=0.1", "triplet.negatives=sum"])
    inputs = batch.scores, batch.relevance, batch.same_image
    triplet, listwise = TripletLoss(0.1, "sum")(*inputs), SmoothNDCGLoss()(*inputs)
    torch.testing.assert_close(objective(batch), triplet / 2 + listwise)
    torch.testing.assert_close(sum(objective.terms(batch).values()), objective(batch))
    alone = Objective(["triplet"], ["margin=0.1", "negatives=sum"])
    torch.testing.assert_close(alone(batch), triplet)
    needs = [(o.needs_relevance, o.needs_paired) for o in (alone, objective, Objective(["log_ratio"]))]
    assert needs == [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize(("name", "loss"), [("log_ratio", LogRatioLoss()), ("dense_triplet", DenseTripletLoss())])
def test_losses_of_embeddings_apply_to_each_kind_that_has_labels(
    name: str, loss: torch.nn.Module, batch: Pairs
) -> None:
    """Check the loss alone, of the first item as the anchor, and the settings `anchors` and `triplet`."""
    assert batch.between_images is not None
    assert batch.between_captions is not None
    images = batch.images, 1.5 - batch.between_images
    captions = batch.captions, 1.5 - batch.between_captions
    for anchors, count in ((1, 1), (4, 4), (0, 6)):
        same = batch.same_image[:count]
        of_images, of_captions = (loss(vectors, apart[:count], same) for vectors, apart in (images, captions))
        objective = Objective([name], top=1.5, anchors=anchors)
        torch.testing.assert_close(objective(batch), of_images + of_captions)
        torch.testing.assert_close(objective(batch._replace(between_captions=None)), of_images)
        assert not objective.compares_kinds
        tied = Objective([name], top=1.5, anchors=anchors, triplet=0.5)
        triplet = TripletLoss(reduction="mean")(batch.scores, None, batch.same_image)
        torch.testing.assert_close(tied(batch), of_images + of_captions + triplet / 2)
        assert tied.compares_kinds


@pytest.mark.parametrize(
    ("names", "items", "said"),
    [(["dense_triplet"], "captions", "--items images"), (["log_ratio", "bcls"], "images", "^bcls: reads labels")],
)
def test_batches_of_the_wrong_items_are_refused(names: list[str], items: str, said: str) -> None:
    Objective(["log_ratio", "triplet"]).check_items("images")
    Objective(["bcls"]).check_items("captions")
    with pytest.raises(FitError, match=said):
        Objective(names).check_items(items)


def test_values_of_settings_are_json_or_text() -> None:
    expected = {"a": 1, "b": [0.5, 2], "c": "soft", "d": True, "e": "="}
    assert parse_settings(("a=1", "b=[0.5, 2]", "c=soft", "d=true", "e==")) == expected


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (["bclss"], [], "'bclss'; did you mean bcls"),
        (["triplet"], ["marign=1"], "marign"),
        (["triplet"], ["margin=-1"], "triplet: margin is -1"),
        (["triplet", "bcls"], ["margin=1"], "margin: .*one of triplet, bcls"),
        (["triplet"], ["bcls.margin=1"], r"bcls\.margin: .*one of triplet"),
        (["triplet"], ["margin"], "NAME=VALUE, found 'margin'"),
        ([], [], "no loss"),
        *(([f"triplet:{weight}"], [], "loss triplet: ") for weight in ("nan", "inf", "-inf", "1e10", "", "x")),
    ],
)
def test_usage_errors_are_named(names: list[str], given: list[str], said: str) -> None:
    with pytest.raises(FitError, match=said):
        Objective(names, given)
