"""All parameters as pydantic models. They define params.yaml, the command-line options and the defaults."""

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
"""Labels that are built by default: label name to the parameters of its source."""


PRESET_SOURCES: dict[str, dict[str, Any]] = {"tuned": {"source": "sbert", "model": "tuned"}, "word2vec": WORD2VEC}
"""Labels that are known by name, as every source is, and not built by default."""


class TuneParams(Parameters):
    """Parameters of the models that relabel trains, one block per source."""

    word2vec: TuneWord2vecParams = TuneWord2vecParams()
    fuse: TuneFuseParams = TuneFuseParams()
    sbert: TuneSbertParams = TuneSbertParams()
    bert_sts: TuneBertStsParams = TuneBertStsParams()


def _sources(value: Any) -> dict[str, SourceParams]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping of label to parameters")
    sources: dict[str, SourceParams] = {}
    for label, params in value.items():
        # A label names folders and goes into commands.
        check_name("label", str(label))
        if isinstance(params, SourceParams):
            sources[label] = params
        elif isinstance(params, Mapping):
            # The name of a source is a label of this source.
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
    """All parameters of params.yaml. They have their defaults unless they are given; `load_config` reads a file."""

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
        """The labels of `export.labels` that are among the sources."""
        return [label for label in self.export.labels if label in self.sources]

    def with_models(self, data: Path, dataset: str) -> Config:
        """Return the same parameters with sources that find tuned models in a data folder."""
        # A shallow copy: the sources get the folder when they are made, and their parameters stay as recorded.
        copy = self.model_copy()
        copy._models = (data, dataset)
        return copy

    def params(self, label: str) -> SourceParams:
        """Return the parameters of a label; the name of a source is a label with the source's defaults.

        `tuned` is the sbert that `relabel tune sbert` makes, and `word2vec` the cbow of `relabel tune word2vec`.
        """
        return self._params(label).completed(self._params)

    def _params(self, label: str) -> SourceParams:
        """Return the parameters of a label as given, before defaults are completed."""
        if label in self.sources:
            return self.sources[label]
        presets = {name: {"source": name} for name in SOURCES} | PRESET_SOURCES
        if label in presets:
            return _source(label, presets[label])
        raise UsageError(f"no label {label!r}", todo=choices(label, [*self.sources, *presets]))

    def source(self, label: str) -> Source[Any]:
        """Return the source of a label. Its paths are absolute, because a process in another folder may use it."""
        params = self.params(label)
        paths = {name: self._place(getattr(params, name), places) for name, places in params.paths.items()}
        return source_class(params.source)(params.model_copy(update=paths))

    def _place(self, value: Any, places: Mapping[str | None, str | None]) -> Any:
        """Return the absolute path that the value of a parameter stands for, or a value that stands for none."""
        if value not in places:
            path = self._folder / Path(value).expanduser()
            # `FILE.zip:MEMBER` names a member of an archive, and `{id}.jpg` a file of every image; any other name that
            # does not exist may be one on the hub.
            return str(path) if path.exists() or ":" in value or "{id" in value else value
        place = places[value]
        if place is None or self._models is None:
            return value
        data, dataset = self._models
        # Absolute, because a missing folder would otherwise be looked up as a name on the hub.
        return str((data / place.format(dataset=dataset)).absolute())

    def with_parts(self, label: str) -> dict[str, Source[Any]]:
        """Return the source of a label, and those of its parts and gates, by label."""
        return {label: self.source(label)} | self.parts(label)

    def parts(self, label: str, above: tuple[str, ...] = ()) -> dict[str, Source[Any]]:
        """Return the sources of the parts and gates of a label, with those of nested parts, by label.

        A label that is made of itself is an error. `above`: the labels that led to this one.
        """
        if label in above:
            chain = " -> ".join((*above[above.index(label) :], label))
            problem, todo = f"label {label} is made of itself: {chain}", "Take it out of the parts of one of these."
            raise UsageError(problem, todo=todo)
        parts: dict[str, Source[Any]] = {}
        for part in self.source(label).input_labels():
            parts |= {part: self.source(part)} | self.parts(part, (*above, label))
        return parts


def load_config(path: Path | None, settings: list[str] = [], overrides: Mapping[str, Any] = {}) -> Config:  # noqa: B006
    """Read the parameters of a file, and override them.

    `path`: YAML file. By default, ./params.yaml if it exists, otherwise the defaults. `settings`: `a.b.c=value` (the
    value is YAML), applied in order. `overrides`: dotted names to values, applied last; None is skipped.
    """
    file = path or _FILE
    body = read_yaml(file) if path is not None or file.exists() else {}
    where = str(file) if body else "parameters"
    # Before any settings, because a setting may change a parameter of a default label.
    body = {"sources": DEFAULT_SOURCES, **body}
    body = _drop_other_captions(body, with_settings(body, settings, overrides))
    return validate(Config, with_settings(body, settings, overrides), where)


def params_file(labels: Path) -> Path | None:
    """Return the parameter file of a folder of labels if the working folder has none.

    It lies next to the folder of labels, so a notebook in another folder works with the parameters of its project.
    """
    beside = labels.parent / _FILE
    return beside if not _FILE.exists() and beside.exists() else None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a parameter file; an empty file has no parameters."""
    body = parse_yaml(read_bytes(path), str(path))
    if not isinstance(body, dict | None):
        raise UsageError("expected a mapping of parameters", where=str(path))
    return body or {}


def _drop_other_captions(body: dict[str, Any], overridden: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the captions of the file if the command names another dataset than the file."""
    in_file, in_command = body.get("ingest"), overridden.get("ingest")
    # A file that names no dataset describes the captions of any.
    if not (isinstance(in_file, dict) and isinstance(in_command, dict) and "dataset" in in_file):
        return body
    if in_command.get("dataset", "coco") == in_file["dataset"]:
        return body
    return {**body, "ingest": {}}
