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
    return Pairs(images @ captions.T, images, captions, relevance, (relevance + relevance.T) / 2, torch.eye(6) > 0)


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
def test_losses_of_embeddings_apply_to_each_kind_with_a_triplet(name: str, loss: torch.nn.Module, batch: Pairs) -> None:
    assert batch.relevance is not None
    assert batch.paired is not None
    expected = TripletLoss(reduction="mean")(batch.scores, None, batch.same_image)
    expected += loss(batch.images, 1.5 - (batch.relevance + batch.relevance.T) / 2, batch.same_image)
    expected += loss(batch.captions, 1.5 - batch.paired, batch.same_image)
    torch.testing.assert_close(Objective([name], top=1.5)(batch), expected)


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
