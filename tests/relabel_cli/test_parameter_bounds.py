"""Contract: every number of every parameter model is finite and has a lower and an upper bound; other values are
refused.

The models are found from the root model, the sources and the options of the command line, so that a new field
without bounds fails this test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from relabel.config import Config
from relabel.core.parameters import Parameters
from relabel.sources import SOURCES, source_class
from relabel_cli.shared_options import SharedOptions
from relabel_cli.trainer import EvalParameters, FitParameters


def models() -> dict[str, type[BaseModel]]:
    sources = {f"sources.{name}": source_class(name).spec.params for name in SOURCES}
    verbs = {"every verb": SharedOptions, "fit": FitParameters, "eval": EvalParameters}
    return {"params.yaml": Config, **sources, **verbs}


def numbers(schema: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON schema of every number below a schema."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield name, schema
        for key, value in schema.items():
            yield from numbers(value, f"{name}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from numbers(value, name)


@pytest.mark.parametrize("name", models())
def test_every_number_has_two_bounds(name: str) -> None:
    for path, schema in numbers(models()[name].model_json_schema(), name):
        assert {"minimum", "exclusiveMinimum"} & set(schema), f"{path} has no lower bound"
        assert {"maximum", "exclusiveMaximum"} & set(schema), f"{path} has no upper bound"


def reachable_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for info in model.model_fields.values():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from reachable_models(info.annotation)


@pytest.mark.parametrize("name", models())
def test_every_model_is_closed_frozen_and_finite(name: str) -> None:
    for model in reachable_models(models()[name]):
        assert issubclass(model, Parameters)
        config = {key: model.model_config.get(key) for key in ("extra", "frozen", "allow_inf_nan")}
        assert config == {"extra": "forbid", "frozen": True, "allow_inf_nan": False}, model


def number_fields() -> list[tuple[type[BaseModel], str]]:
    fields_found = []
    for model in (inner for outer in models().values() for inner in reachable_models(outer)):
        for name, schema in model.model_json_schema()["properties"].items():
            if any(True for _ in numbers({k: v for k, v in schema.items() if k != "$ref"}, name)):
                fields_found.append((model, name))
    return fields_found


@pytest.mark.parametrize(("model", "field"), number_fields(), ids=lambda value: getattr(value, "__name__", value))
def test_a_field_of_numbers_accepts_only_numbers_in_its_bounds(model: type[BaseModel], field: str) -> None:
    for value in (10**19, -(10**19), float("nan"), float("inf"), True, "x", "0b1", "nan", 10**400, "9" * 400, {}):
        for field_value in (value, [value]):
            with pytest.raises(ValidationError, match=rf"(?m)^{field}"):
                model(**{field: field_value})
