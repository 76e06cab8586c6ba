"""Contract: docs/reference.md and params.yaml agree with the parameter models."""

from __future__ import annotations

from pathlib import Path

from relabel.config import DEFAULT_SOURCES, Config, load_config
from relabel_cli.reference import reference

ROOT = Path(__file__).parents[2]


def test_the_reference_page_matches_the_models() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m relabel_cli.reference > docs/reference.md"


def test_params_yaml_holds_the_defaults() -> None:
    assert load_config(ROOT / "params.yaml") == Config(sources=DEFAULT_SOURCES)
