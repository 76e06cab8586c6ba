"""All parameters as pydantic models, which define params.yaml, the command-line options and the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, SerializeAsAny, ValidationError

from relabel.core.errors import UsageError, choices
from relabel.core.parameters import Parameters, check_name, describe, parse_yaml, validate, with_settings
from relabel.core.parsing import read_bytes
from relabel.corpus.params import IngestParams
from relabel.export.params import ExportParams
from relabel.judge import JudgeParams
from relabel.neighbour_tables.spec import NeighboursParams
from relabel.sources import SOURCES, source_class
from relabel.sources.base import Source, SourceParams
from relabel.sources.bert_sts.tune import TuneBertStsParams
from relabel.sources.cbow.tune import TuneWord2vecParams
from relabel.sources.fuse.fit import TuneFuseParams
from relabel.sources.sbert.tune import TuneSbertParams

_FILE = Path("params.yaml")

WORD2VEC = {"source": "cbow", "vectors": "word2vec"}

DEFAULT_SOURCES: dict[str, dict[str, Any]] = {
    "same_image": {"source": "same_image"},
    "cbow": {"source": "cbow"},
    "word2vec": WORD2VEC,
    "cider": {"source": "cider"},
    "cider_lower_split": {"source": "cider", "tokenizer": "lower_split"},
    "meteor": {"source": "meteor"},
    "sbert": {"source": "sbert"},
}
"""Labels that are built by default, with the parameters of their sources."""


PRESET_SOURCES: dict[str, dict[str, Any]] = {"tuned": {"source": "sbert", "model": "tuned"}, "word2vec": WORD2VEC}
"""Labels that can be used by name, like every source, but are not built by default."""


class TuneParams(Parameters):
    """Parameters of the models that relabel trains, one section per source."""

    word2vec: TuneWord2vecParams = TuneWord2vecParams()
    fuse: TuneFuseParams = TuneFuseParams()
    sbert: TuneSbertParams = TuneSbertParams()
    bert_sts: TuneBertStsParams = TuneBertStsParams()


def _sources(value: Any) -> dict[str, SourceParams]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping of label to parameters")
    sources: dict[str, SourceParams] = {}
    for label, params in value.items():
        # Labels are names of folders and parts of commands.
        check_name("label", str(label))
        if isinstance(params, SourceParams):
            sources[label] = params
        elif isinstance(params, Mapping):
            # A label with the name of a source uses this source by default.
            sources[label] = _source(label, {"source": label, **params})
        else:
            raise ValueError(f"{label}: expected a mapping of parameters")
    return sources


def _source(label: str, params: dict[str, Any]) -> SourceParams:
    """Return the parameters of a label."""
    source = str(params["source"])
    if source not in SOURCES:
        raise ValueError(f"{label}.source: no source {source!r}. {choices(source, SOURCES)}")
    try:
        return source_class(source).spec.params(**params)
    except ValidationError as error:
        raise ValueError(f"{label}.{describe(error)}") from error


class Config(Parameters):
    """All parameters of params.yaml, by default with their default values. `load_config` reads a file."""

    ingest: IngestParams = IngestParams()
    tune: TuneParams = TuneParams()
    neighbours: NeighboursParams = NeighboursParams()
    judge: JudgeParams = JudgeParams()
    export: ExportParams = ExportParams()
    sources: Annotated[dict[str, SerializeAsAny[SourceParams]], BeforeValidator(_sources)] = Field(
        default_factory=lambda: _sources(DEFAULT_SOURCES)
    )

    _models: tuple[Path, str] | None = PrivateAttr(None)
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def exported(self) -> list[str]:
        """Labels of `export.labels` that have a source."""
        return [label for label in self.export.labels if label in self.sources]

    def with_models(self, data: Path, dataset: str) -> Config:
        """Return a copy in which sources look for tuned models in a data folder."""
        # A shallow copy is enough: sources get the folder when they are created, and parameters do not change.
        copy = self.model_copy()
        copy._models = (data, dataset)
        return copy

    def params(self, label: str) -> SourceParams:
        """Return the parameters of a label. The name of a source is a label with the source's defaults.

        `tuned` is sbert with the model of `tune sbert`, and `word2vec` is cbow with the vectors of `tune word2vec`.
        """
        return self._params(label).completed(self._params)

    def _params(self, label: str) -> SourceParams:
        """Return the parameters of a label without completing defaults."""
        if label in self.sources:
            return self.sources[label]
        presets = {name: {"source": name} for name in SOURCES} | PRESET_SOURCES
        if label in presets:
            return _source(label, presets[label])
        raise UsageError(f"no label {label!r}", hint=choices(label, [*self.sources, *presets]))

    def source(self, label: str) -> Source[Any]:
        """Return the source of a label. Its paths are absolute, because processes in other folders may use it."""
        params = self.params(label)
        paths = {name: self._place(getattr(params, name), places) for name, places in params.paths.items()}
        return source_class(params.source)(params.model_copy(update=paths))

    def _place(self, value: Any, places: Mapping[str | None, str | None]) -> Any:
        """Return the absolute path for the value of a parameter, or the value if it is not a path."""
        if value not in places:
            path = self._folder / Path(value).expanduser()
            # `FILE.zip:MEMBER` is a member of an archive, and `{id}.jpg` a file per image. Any other name that does not
            # exist may be a name on the hub.
            return str(path) if path.exists() or ":" in value or "{id" in value else value
        place = places[value]
        if place is None or self._models is None:
            return value
        data, dataset = self._models
        # If the folder is missing, a relative path would be looked up on the hub.
        return str((data / place.format(dataset=dataset)).absolute())

    def with_parts(self, label: str) -> dict[str, Source[Any]]:
        """Return the sources of a label, its parts and its gates, by label."""
        return {label: self.source(label)} | self.parts(label)

    def parts(self, label: str, above: tuple[str, ...] = ()) -> dict[str, Source[Any]]:
        """Return the sources of the parts and gates of a label, including nested ones, by label.

        Raises UsageError if a label is part of itself. `above`: the labels that contain this one.
        """
        if label in above:
            chain = " -> ".join((*above[above.index(label) :], label))
            problem, hint = f"label {label} is part of itself: {chain}", "Remove it from the parts of one of these."
            raise UsageError(problem, hint=hint)
        parts: dict[str, Source[Any]] = {}
        for part in self.source(label).input_labels():
            parts |= {part: self.source(part)} | self.parts(part, (*above, label))
        return parts


def load_config(path: Path | None, settings: list[str] = [], overrides: Mapping[str, Any] = {}) -> Config:  # noqa: B006
    """Read the parameters of a file, and override them.

    `path`: YAML file. By default, ./params.yaml if it exists, otherwise the defaults. `settings`: `a.b.c=value`, with
    YAML values, applied in order. `overrides`: values by dotted name, applied last; None is skipped.
    """
    file = path or _FILE
    body = read_yaml(file) if path is not None or file.exists() else {}
    where = str(file) if body else "parameters"
    # Add default labels before applying settings, because a setting may change a default label.
    body = {"sources": DEFAULT_SOURCES, **body}
    body = _drop_other_captions(body, with_settings(body, settings, overrides))
    return validate(Config, with_settings(body, settings, overrides), where)


def params_file(labels: Path) -> Path | None:
    """Return the parameter file next to a folder of labels, unless the working folder has one.

    With it, a notebook in another folder uses the parameters of its project.
    """
    beside = labels.parent / _FILE
    return beside if not _FILE.exists() and beside.exists() else None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a parameter file. An empty file is an empty mapping."""
    body = parse_yaml(read_bytes(path), str(path))
    if not isinstance(body, dict | None):
        raise UsageError("expected a mapping of parameters", where=str(path))
    return body or {}


def _drop_other_captions(body: dict[str, Any], overridden: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the captions of the file if the command names another dataset."""
    in_file, in_command = body.get("ingest"), overridden.get("ingest")
    # A file without a dataset describes the captions of any dataset.
    if not (isinstance(in_file, dict) and isinstance(in_command, dict) and "dataset" in in_file):
        return body
    if in_command.get("dataset", "coco") == in_file["dataset"]:
        return body
    return {**body, "ingest": {}}
