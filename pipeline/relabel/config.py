"""All parameters, as pydantic models: params.yaml, the command line's options and the defaults are these."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, SerializeAsAny, ValidationError, field_validator

from relabel.core.errors import UsageError
from relabel.core.layout import RULE, is_name
from relabel.core.parameters import Parameters, describe
from relabel.core.plain_yaml import parse_yaml
from relabel.core.user_files import check_regular, file_status
from relabel.corpus.params import IngestParams
from relabel.export.params import ExportParams
from relabel.judge import JudgeParams
from relabel.neighbours.params import NeighboursParams
from relabel.sources import SOURCES, source_class
from relabel.sources.base import Source, SourceParams
from relabel.sources.bert_sts.tune import TuneBertStsParams
from relabel.sources.cbow.tune import TuneCbowParams
from relabel.sources.fuse.tune import TuneFuseParams
from relabel.sources.sbert.tune import TuneSbertParams

_MOST_BYTES = 1 << 20
_SHOWN = 200  # characters of a setting in a message

OF_ANY_DATASET = ("tokenizer", "rows_per_shard")
"""Parameters of `ingest` in a file that apply to other datasets than the one the file names."""

DEFAULT_SOURCES: dict[str, dict[str, Any]] = {
    "same_image": {"source": "same_image"},
    "cbow": {"source": "cbow"},
    "cider": {"source": "cider"},
    "cider_lower_split": {"source": "cider", "tokenizer": "lower_split"},
    "meteor": {"source": "meteor"},
    "sbert": {"source": "sbert"},
}
"""The labels that are built where nothing else is asked: label name to the parameters of its source."""


class EncodeParams(Parameters):
    """How encodings are cut into shards."""

    rows_per_shard: int = Field(50_000, ge=1, le=10_000_000, description="Captions a shard.")


class TuneParams(Parameters):
    """The models that are made here, one block a source."""

    cbow: TuneCbowParams = TuneCbowParams()
    fuse: TuneFuseParams = TuneFuseParams()
    sbert: TuneSbertParams = TuneSbertParams()
    bert_sts: TuneBertStsParams = TuneBertStsParams()


class Config(Parameters):
    """Everything in params.yaml."""

    ingest: IngestParams = IngestParams()
    tune: TuneParams = TuneParams()
    encode: EncodeParams = EncodeParams()
    neighbours: NeighboursParams = NeighboursParams()
    judge: JudgeParams = JudgeParams()
    export: ExportParams = ExportParams()
    sources: dict[str, SerializeAsAny[SourceParams]] = Field(default_factory=lambda: _sources(DEFAULT_SOURCES))

    _file: Config | None = PrivateAttr(None)
    _models: tuple[Path, str] | None = PrivateAttr(None)

    @property
    def file(self) -> Config:
        """The parameters of the file alone; these ones, if nothing overrides them."""
        return self._file or self

    def with_models(self, data: Path, dataset: str) -> Config:
        """Return the same parameters, whose sources take models from a data folder (see SourceParams.with_models)."""
        copy = self.model_copy()
        copy._models = (data, dataset)
        copy._file = None if self._file is None else self._file.with_models(data, dataset)
        return copy

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
        return source_class(params.source)(params if self._models is None else params.with_models(*self._models))

    def parts(self, label: str) -> dict[str, Source[Any]]:
        """Return the sources that a label is made of or gated by, with those of their own parts, by label.

        Raises
        ------
        UsageError
            As `source`, for the label or a part.
        """
        parts: dict[str, Source[Any]] = {}
        for part in self.source(label).input_labels():
            parts |= {part: self.source(part)} | self.parts(part)
        return parts


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
        On anything that is not a parameter or not a value for it; names the file or setting, and the parameter.
    """
    file = path or Path("params.yaml")
    body = read_yaml(file) if path is not None or file_status(file) is not None else {}
    where = str(file) if body else "parameters"
    body.setdefault("sources", DEFAULT_SOURCES)
    body = _of_dataset(body, with_overrides(body, settings, overrides))
    try:
        config = Config(**with_overrides(body, settings, overrides))
        if settings or any(value is not None for value in overrides.values()):
            config._file = _if_valid(body)
        return config
    except ValidationError as error:
        raise UsageError(describe(error), where=where) from error
    except UsageError as error:  # of a source's own parameters
        raise UsageError(error.problem, where=error.where or where, todo=error.todo) from error


def _if_valid(body: dict[str, Any]) -> Config | None:
    """Read parameters that the command completes or mends: on their own they may be no parameters."""
    try:
        return Config(**body)
    except (ValidationError, UsageError):
        return None


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a parameter file; an empty file has no parameters.

    Raises
    ------
    MissingError
        If there is no such file.
    UsageError
        If it is larger than 1 MiB, is not YAML or is not a mapping.
    """
    size = check_regular(path, "no such parameter file").stat().st_size
    if size > _MOST_BYTES:
        raise UsageError(f"a parameter file has at most {_MOST_BYTES:,} bytes, found {size:,}", where=str(path))
    try:
        body = parse_yaml(path.read_bytes().decode())
    except ValueError as error:  # UnicodeDecodeError is one
        raise UsageError(f"not YAML: {error}", where=str(path)) from error
    if not isinstance(body, dict | None):
        raise UsageError("expected a mapping of parameters", where=str(path))
    return body or {}


def with_overrides(body: Mapping[str, Any], settings: list[str], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters after applying settings (`NAME=YAML`) and then options by dotted name; None is skipped."""
    result = deepcopy(dict(body))
    for setting in settings:
        name, equals, text = setting.partition("=")
        option = f"--set {setting if len(setting) <= _SHOWN else f'{setting[:_SHOWN]}...'}"
        if not (equals and all(name.split("."))):
            raise UsageError("expected NAME=VALUE", where=option)
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise UsageError(f"not YAML: {error}", where=option) from error
        _assign(result, name, value, option)
    for name, value in overrides.items():
        if value is not None:
            _assign(result, name, value, name)
    return result


def _of_dataset(body: dict[str, Any], overridden: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the file's captions where the command names another dataset than the file: they are not that dataset's."""
    ours, asked = body.get("ingest"), overridden.get("ingest")
    if not (isinstance(ours, dict) and isinstance(asked, dict)) or "dataset" not in ours:
        return body
    if asked.get("dataset", "coco") == ours["dataset"]:
        return body
    return {**body, "ingest": {name: value for name, value in ours.items() if name in OF_ANY_DATASET}}


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
    found: dict[str, SourceParams] = {}
    for label, params in value.items():
        if not is_name(str(label)):
            raise ValueError(f"{label!r} cannot name a label. {RULE}")
        if isinstance(params, SourceParams):
            found[label] = params
        elif isinstance(params, Mapping) and "source" in params:
            found[label] = _source(label, dict(params))
        else:
            raise UsageError(f"sources.{label} must name its source")
    return found


def _source(label: str, params: dict[str, Any]) -> SourceParams:
    try:
        return source_class(str(params["source"])).spec.params(**params)
    except ValidationError as error:
        raise UsageError(describe(error, "sources", label)) from error
