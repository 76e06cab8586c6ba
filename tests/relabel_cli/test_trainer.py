"""Contract: `relabel fit` takes the name of a loss or model by its option, and their parameters by `--set`."""

from __future__ import annotations

from typing import Any

import pytest

from relabel_cli.options import SharedOptions
from relabel_cli.trainer import FitParameters, parse

PLACES = ["features=f", "captions=c"]
SUM = [{"name": "triplet"}, {"name": "sam", "factor": 5, "tau": 0.3}]


@pytest.mark.parametrize(
    ("options", "settings", "field", "expected"),
    [
        ({}, [], "loss", {"name": "triplet"}),
        ({"loss": "bcls"}, ["loss.alpha=0.1"], "loss", {"name": "bcls", "alpha": 0.1}),
        ({}, ["loss.margin=0.1"], "loss", {"name": "triplet", "margin": 0.1}),
        ({}, ["loss=[{name: triplet}, {name: sam, factor: 5, tau: 0.3}]"], "loss", SUM),
        ({"model": "saf"}, ["model.embed_dim=64"], "model", {"name": "saf", "embed_dim": 64}),
        ({}, ["sampler.name=graded", "sampler.group=4"], "sampler", {"name": "graded", "group": 4}),
        ({}, ["sampler=neighbour"], "sampler", {"name": "neighbour"}),
    ],
)
def test_names_and_parameters_are_one_choice(options: Any, settings: list[str], field: str, expected: Any) -> None:
    parsed = parse(FitParameters, SharedOptions(set=[*PLACES, *settings], overrides=options))
    assert getattr(parsed, field) == expected
