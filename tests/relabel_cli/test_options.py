"""Contract: the fields of a pydantic model are options of a verb, with name, type, default and help, after the
verb's own options. Options of a section are unset by default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from relabel_cli.options import Overrides, verb


class SharedOptions(BaseModel):
    out: Path = Field(Path("labels"), description="Where to.")
    names: list[str] = Field([], description="Names.")
    quiet: bool = Field(False, description="Say nothing.", json_schema_extra={"flags": ["-q"]})


class Section(BaseModel):
    rows_per_shard: int = Field(50, ge=1, description="Rows.")
    include_self: bool = Field(True, description="Keep it.")
    form: Literal["a", "b"] = Field("a", description="Form.")
    limit: float | None = Field(None, description="Limit of rows per file; without a limit, all rows are read.")
    nested: dict[str, int] = Field({}, description="For params.yaml alone.")


seen: dict[str, Any] = {}


def do(
    shared: SharedOptions, options: Annotated[dict[str, Any], Overrides(Section, "part")], more: str = typer.Option("x")
) -> None:
    """Do it."""
    seen.clear()
    seen.update(shared=shared, options=options, more=more)


@pytest.fixture
def run() -> Any:
    app = verb(do)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_defaults_are_those_of_the_model(run: Any) -> None:
    assert run().exit_code == 0
    assert seen == {"shared": SharedOptions(), "options": {}, "more": "x"}


def test_options_are_typed(run: Any) -> None:
    result = run(
        "--out", "o", "--names", "a", "--names", "b", "-q", "--rows-per-shard", "7", "--no-include-self", "--limit", "2"
    )
    assert result.exit_code == 0, result.output
    assert seen["shared"] == SharedOptions(out=Path("o"), names=["a", "b"], quiet=True)
    assert seen["options"] == {"part.rows_per_shard": 7, "part.include_self": False, "part.limit": 2.0}


def test_help_shows_the_descriptions_and_defaults_of_the_model(run: Any) -> None:
    text = run("--help").output
    for fragment in ("Where to.", "Rows. [default: 50]", "--no-include-self", "[default: a]"):
        assert fragment in text
    assert "nested" not in text


def test_a_wrong_type_is_a_usage_error(run: Any) -> None:
    assert run("--rows-per-shard", "many").exit_code == 2
    assert run("--form", "c").exit_code == 2
