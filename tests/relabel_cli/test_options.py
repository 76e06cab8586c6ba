"""Contract: named fields of a pydantic model are options of a verb, with name, type, default and help; `--set` reaches
all others. Values outside the bounds of a field are refused by its name before any file is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError
from tests.relabel_cli.runner import invoke

from relabel.core.errors import UsageError
from relabel_cli.exceptions import report
from relabel_cli.options import verb
from relabel_cli.shared_options import SharedOptions
from relabel_cli.trainer import EvalParameters, FitParameters, parse


class Section(BaseModel):
    rows_per_shard: int = Field(50, ge=1, description="Rows.")
    keep_own: bool = Field(True, description="Keep it.")
    form: Literal["a", "b"] = Field("a", description="Form.")
    limit: float | None = Field(None, description="Limit.")
    names: tuple[str, ...] = Field((), description="Names.")
    seed: int = Field(0, description="For --set alone.")


seen: dict[str, Any] = {}
NAMES = "rows_per_shard keep_own form limit names"


def do(common: SharedOptions) -> None:
    """Do it."""
    seen.update(common=common)


def run(*arguments: str) -> None:
    verb(do, ("labels", "set", "quiet"), Section, NAMES, "part")(list(arguments), standalone_mode=False)


def test_options_are_unset_by_default() -> None:
    run()
    assert seen["common"] == SharedOptions()


def test_options_are_typed() -> None:
    own = ["--rows-per-shard", "7", "--no-keep-own", "--limit", "2", "--names", "a,b", "--names", "c"]
    run(*own, "--labels", "o", "-q", "--set", "x=[1, 2]")
    assert seen["common"].model_copy(update={"overrides": {}}) == SharedOptions(
        labels=Path("o"), quiet=True, set=["x=[1, 2]"]
    )
    assert seen["common"].overrides == {
        "part.rows_per_shard": 7,
        "part.keep_own": False,
        "part.limit": 2.0,
        "part.names": ["a", "b", "c"],
    }


def test_the_help_shows_descriptions_and_defaults_in_two_sections(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    own, _, shared = capsys.readouterr().out.partition("Shared options:")
    for fragment in ("Rows. [default: 50]", "--no-keep-own", "[default: a]"):
        assert fragment in own
    assert "--labels" in shared
    assert "--seed" not in own
    assert "--threads" not in shared


def test_a_wrong_type_is_a_usage_error() -> None:
    for arguments in (("--rows-per-shard", "many"), ("--form", "c")):
        with pytest.raises(Exception, match=r"valid integer|'c'") as error:
            run(*arguments)
        assert report(error.value) == 2  # type: ignore[arg-type]


def test_shared_options_reach_the_runtime() -> None:
    runtime = SharedOptions(memory="2GiB", workers=3, threads=5).runtime()
    assert (runtime.memory, runtime.workers, runtime.threads, runtime.shard) == (2 << 30, 3, 5, None)
    runtime = SharedOptions(scheduler="tcp://here:8786").runtime()
    assert (runtime.memory, runtime.scheduler) == (4 << 30, "tcp://here:8786")
    assert SharedOptions(shard="2/8").runtime().shard == (2, 8)
    for memory in ("much", "255MiB"):
        with pytest.raises(ValidationError, match="memory"):
            SharedOptions(memory=memory)
    for shard in ("3/2", "0/2", "1"):
        with pytest.raises((UsageError, ValidationError), match="shard"):
            SharedOptions(shard=shard).runtime()
    with pytest.raises(UsageError, match="--scheduler"):
        SharedOptions(workers=2, scheduler="tcp://here:8786").runtime()


def test_the_trainer_takes_every_parameter_by_set() -> None:
    given = {"data": Path("d"), "captions": Path("c"), "loss": ["bcls", "triplet:0.5"]}
    settings = ["lr=1e-4", "loss_kwargs=[margin=0.1, triplet.margin=0.2]", "val=test"]
    assert parse(FitParameters, SharedOptions(set=settings, overrides=given)) == FitParameters(
        data=Path("d"),
        captions=Path("c"),
        loss=("bcls", "triplet:0.5"),
        lr=1e-4,
        loss_kwargs=("margin=0.1", "triplet.margin=0.2"),
        val="test",
    )
    with pytest.raises(UsageError, match="run: Field required"):
        parse(EvalParameters, SharedOptions())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("epochs", ["--epochs", "1000000000000"]),
        ("wide: no such parameter", ["--set", "wide=1"]),
        ("--labels", ["--labels", "x", "--batches", "y"]),
    ],
)
def test_an_option_outside_its_bounds_is_named(name: str, arguments: list[str]) -> None:
    code, output = invoke("fit", "--data", "d", "--captions", "c", *arguments)
    assert code == 2
    assert name in output
