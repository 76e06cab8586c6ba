"""All parameters, as pydantic models: params.yaml, the command line's options and the defaults are these."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator

from relabel.errors import MissingError, UsageError
from relabel.export.params import ExportParams
from relabel.fitting.params import FitTableParams
from relabel.ingest import IngestParams
from relabel.judge.params import JudgeParams
from relabel.neighbours.params import NeighboursParams
from relabel.proxy.params import ProxyFeaturesParams
from relabel.sources import SOURCES, source_class
from relabel.sources.base import Source, SourceParams
from relabel.tuning.bert_sts import TuneBertStsParams
from relabel.tuning.cbow import TuneCbowParams
from relabel.tuning.fuse import TuneFuseParams
from relabel.tuning.sbert import TuneSbertParams

DEFAULT_SOURCES: dict[str, dict[str, Any]] = {
    "same_image": {"source": "same_image"},
    "cbow": {"source": "cbow"},
    "cider": {"source": "cider"},
    "cider_lower_split": {"source": "cider", "tokenizer": "lower_split"},
    "meteor": {"source": "meteor"},
    "sbert": {"source": "sbert"},
}
"""The labels that are built where nothing else is asked: label name to the parameters of its source."""


class EncodeParams(BaseModel):
    """How encodings are cut into shards."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows_per_shard: int = Field(50_000, ge=1, description="Captions a shard.")


class TuneParams(BaseModel):
    """The models that are made here, one block a source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cbow: TuneCbowParams = TuneCbowParams()
    fuse: TuneFuseParams = TuneFuseParams()
    sbert: TuneSbertParams = TuneSbertParams()
    bert_sts: TuneBertStsParams = TuneBertStsParams()


class Config(BaseModel):
    """Everything in params.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ingest: IngestParams = IngestParams()
    tune: TuneParams = TuneParams()
    encode: EncodeParams = EncodeParams()
    neighbours: NeighboursParams = NeighboursParams()
    judge: JudgeParams = JudgeParams()
    export: ExportParams = ExportParams()
    proxy_features: ProxyFeaturesParams = ProxyFeaturesParams()
    fit_table: FitTableParams = FitTableParams()
    sources: dict[str, SerializeAsAny[SourceParams]] = Field(default_factory=lambda: _sources(DEFAULT_SOURCES))

    @field_validator("sources", mode="before")
    @classmethod
    def _read_sources(cls, value: Any) -> dict[str, SourceParams]:
        return _sources(value)

    def params(self, label: str) -> SourceParams:
        """Return the parameters of a label; a source's own name is a label, too, with the source's defaults.

        Raises
        ------
        UsageError
            If there is no such label.
        """
        if label in self.sources:
            return self.sources[label]
        if label in SOURCES:
            return _source(label, {"source": label})
        others = [name for name in SOURCES if name not in self.sources]
        there = f"There are {', '.join(self.sources)}, and with default parameters {', '.join(others)}"
        raise UsageError(f"no label {label!r}", todo=f"{there}; see `sources` in params.yaml.")

    def source(self, label: str) -> Source[Any]:
        """Make the source that a label names.

        Raises
        ------
        UsageError
            If there is no such label, or its pooling makes no sense for its source.
        """
        params = self.params(label)
        return source_class(params.source)(params)


def load_config(path: Path | None, settings: list[str] = [], overrides: Mapping[str, Any] = {}) -> Config:  # noqa: B006
    """Read parameters.

    Parameters
    ----------
    path : Path or None
        A YAML file; None takes ./params.yaml if there is one, else the defaults.
    settings : list of str
        `a.b.c=value` (the value is YAML), applied in order.
    overrides : mapping
        Dotted names to values, applied last; None is skipped.

    Raises
    ------
    MissingError
        If a named file is not there.
    UsageError
        On anything that is not a parameter or not a value for it; names the file or setting.
    """
    where = path or Path("params.yaml")
    body: dict[str, Any] = {}
    if where.exists():
        try:
            body = yaml.safe_load(where.read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"not YAML: {error}", where=str(where)) from error
        if not isinstance(body, dict):
            raise UsageError("expected a mapping of parameters", where=str(where))
    elif path is not None:
        raise MissingError("no such parameter file", where=str(path))
    body.setdefault("sources", deepcopy(DEFAULT_SOURCES))
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError("expected NAME=VALUE", where=f"--set {setting}")
        try:
            _assign(body, name, yaml.safe_load(text), f"--set {setting}")
        except yaml.YAMLError as error:
            raise UsageError(f"not YAML: {text}", where=f"--set {setting}") from error
    for name, value in overrides.items():
        if value is not None:
            _assign(body, name, value, name)
    try:
        return Config(**body)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(p) for p in first["loc"])
        raise UsageError(
            f"{name}: {first['msg'].removeprefix('Value error, ')}",
            where=str(where) if where.exists() else "parameters",
        ) from error


def _assign(body: dict[str, Any], name: str, value: Any, where: str) -> None:
    *parents, last = name.split(".")
    for parent in parents:
        found = body.setdefault(parent, {})
        if not isinstance(found, dict):
            raise UsageError(f"{parent} has no parameters of its own", where=where)
        body = found
    body[last] = value


def _sources(value: Any) -> dict[str, SourceParams]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping of label to parameters")
    found = {}
    for label, params in value.items():
        if isinstance(params, SourceParams):
            found[label] = params
        elif isinstance(params, Mapping) and "source" in params:
            found[label] = _source(label, dict(params))
        else:
            raise ValueError(f"{label} must name its source")
    return found


def _source(label: str, params: dict[str, Any]) -> SourceParams:
    try:
        return source_class(str(params["source"])).params_model(**params)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join([label, *(str(p) for p in first["loc"])])
        raise ValueError(f"{name}: {first['msg']} (found {first['input']!r})") from error
