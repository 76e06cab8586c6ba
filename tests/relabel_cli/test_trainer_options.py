"""Contract: training options are checked against the trainer's bounds before any file is read."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from relabel_cli.root import app


@pytest.mark.parametrize(
    ("option", "value"),
    [("--epochs", "1000000000000"), ("--batch-size", "-1"), ("--lr", "nan"), ("--lr", "inf"), ("--seed", "-1")],
)
def test_an_option_outside_its_bounds_is_named(option: str, value: str) -> None:
    result = CliRunner().invoke(app, ["fit", "--data", "d", "--captions", "c", option, value])
    assert result.exit_code == 2
    assert option.removeprefix("--").replace("-", "_") in result.stderr
