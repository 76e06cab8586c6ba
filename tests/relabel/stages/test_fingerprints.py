"""Contract: every parameter changes the fingerprint of the artefact whose values it can affect, or is listed with
the reason why it cannot. Resources (device, threads, memory) change none. A changed caption changes all.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, ValidationError
from tests.golden.hostile import _tar as tar_of
from tests.relabel.stages.parameter_values import SAME, SETTINGS, SOURCE_SETTINGS, STRINGS, TEXTS, VALUES

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, RelabelError
from relabel.core.runtime import Progress, Runtime
from relabel.export import EXPORTS
from relabel.sources import SOURCES, source_class
from relabel.sources.fuse.model import FuseModel, Part, without_rows
from relabel.stages import Job, Session
from relabel.store import manifest
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MODELS, Spec, version_of
from relabel_train.lookup.format import Description
from relabel_train.precomputed import BatchesDescription
from relabel_train.scoring.fuse import Curve, Feature, Head
from relabel_train.sidecar import SideCarDescription


def fake(job: Job) -> None:
    """Write a folder that has the fingerprint of an artefact and none of its files."""
    near = {"width": 8, "candidate_count": 8, "neighbours": None}
    metadata = {"kind": "vectors", "rows": [0, 6], "split": "train", **near}
    recipe = dataclasses.replace(job.recipe, fill=lambda work: work.metadata.update(metadata))
    dataclasses.replace(job, recipe=recipe).run()


def write_shards(folder: str, keys: str) -> None:
    """Write a webdataset shard whose samples have a text and a JSON with another image id."""
    Path(folder).mkdir()
    sample = {"txt": b"a dog", "json": b'{"id": "9"}'}
    Path(folder, "0.tar").write_bytes(tar_of(*((f"{key}.{kind}", sample[kind]) for key in keys for kind in sample)))


@pytest.fixture(scope="module")
def built_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return ten captions of five images in three splits, two files of word vectors, and encodings without files.

    A stand-in with a fixed name replaces the sentence encoder.
    """
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for source in ("sbert.Sbert", "bert_sts.BertSts"):
            patch.setattr(f"relabel.sources.{source}._files", lambda self, runtime: Model(self.params.model))
        for module in ("models.files", "bert_sts.tune", "sbert.tune"):
            patch.setattr(f"relabel.sources.{module}.find_model", lambda name, *_, **__: Model(name))
        files = {"stsb": Path("words.txt"), "sick": Path("others.jsonl")}
        patch.setattr("relabel.sources.sbert.tune_data.find_sentence_pairs", lambda name, _: files[name])
        three = dict.fromkeys(("train", "dev", "test"), Path("words.txt"))
        patch.setattr("relabel.sources.bert_sts.tune.find_stsb_files", lambda _: three)
        _make()
        yield folder


@pytest.fixture
def folder(built_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the project into the working folder of the test."""
    shutil.copytree(built_project, tmp_path / "folder")
    monkeypatch.chdir(tmp_path / "folder")
    return tmp_path / "folder"


def _make() -> None:
    write_captions("captions.jsonl", TEXTS)
    Path("captions.csv").write_text("caption_id,image_id,split,text,other\n1,1,val,a dog,x\n")
    # A table without a header, which takes names of columns.
    Path("tokens.csv").write_text("1.jpg#0,a dog\n")
    # With the columns of img2dataset's metadata as well.
    row = {"caption_id": "1", "image_id": "1", "split": "val", "text": "a dog", "key": "2", "status": "success"}
    pq.write_table(pa.Table.from_pylist([row]), "captions.parquet")
    Path("captions.json").write_text(json.dumps({"data": [row | {"noise": "x", "other": "y"}]}))
    Path("scan").mkdir()
    Path("scan/train_caps.txt").write_text("a dog\nthe dog\n")
    Path("scan/train_ids.txt").write_text("7\n8\n")
    write_captions("others.jsonl", (*TEXTS[:-1], "a sky"))
    write_shards("shards", "012")
    write_shards("other_shards", "01")
    Path("words.txt").write_text("dog 1 0\ncat 0 1\n")
    Path("others.txt").write_text("dog 1 0\ncat 1 1\n")
    for i, name in enumerate(("given", "given2")):
        Path(f"{name}.csv").write_text(f"image_id,caption_id,score\n0,0,0.{i}\n")
    for image in range(5):
        Path(f"{image}.jpg").write_text("a stand-in")
    for side in ("given", "images"):
        for i, name in enumerate((side, f"{side}2")):
            np.save(f"{name}.npy", np.full((10, 2), i + 1.0))
            Path(f"{name}.ids.txt").write_text("\n".join(map(str, range(i, 10 + i))))
    project_of = session(base())
    stages.ingestion(project_of).run()
    near = Part("cbow", False, without_rows(stages.encoding(project_of, "near", "train").spec().config))
    for i, name in enumerate(("fuse", "fuse2")):
        head = Head((Curve(Feature("near", "max"), (0.0, 1.0), (0.0, i + 1.0)),))
        model = FuseModel({"near": near}, {"set": head, "single": head})
        build(Path(name), Recipe("fuse_model", name, lambda i=i: {"weight": i}, {}, model.write))
    for label in project_of.config.sources:
        for split in ("train", "val", "test", "all"):
            fake(stages.encoding(project_of, label, split))


@dataclasses.dataclass
class Model:
    name: str
    folder: Path = Path("no model")

    def sha256(self) -> str:
        return self.name


def write_captions(file: str, texts: tuple[str, ...], **last_line: str) -> None:
    lines = []
    for i, text in enumerate(texts):
        split = ("train", "train", "train", "val", "test")[i // 2]
        line = {"caption_id": str(i), "image_id": str(i // 2), "split": split, "text": text}
        line |= {"noise": "unused"} | (last_line if i == len(texts) - 1 else {})
        lines.append(json.dumps(line | {"other": line["text"] + "!"}) + "\n")
    Path(file).write_text("".join(lines), encoding="utf-8")


def base() -> Config:
    sources = {label: {"source": label} | values for label, values in SOURCE_SETTINGS.items()}
    return load_config(None, SETTINGS, {"sources": sources})


def session(config: Config, **runtime: Any) -> Session:
    return Session(config, Runtime(**runtime))


def with_value(config: Config, place: str, field: str, value: Any) -> Config:
    """Return a validated copy with one field of one model changed."""

    def put(model: Any, names: list[str]) -> Any:
        if not names:
            return type(model)(**{**{n: getattr(model, n) for n in type(model).model_fields}, field: value})
        name, *rest = names
        if isinstance(model, Mapping):
            return {**model, name: put(model[name], rest)}
        return model.model_copy(update={name: put(getattr(model, name), rest)})

    changed_config: Config = put(config, place.split("."))
    return changed_config


def other_values(kind: Any, value: Any) -> Iterator[Any]:
    """Yield values of a type, those of a small type completely; some are invalid in some situations."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        yield from inner
    elif origin in (Union, UnionType):
        yield from chain.from_iterable(other_values(each, value) for each in inner)
    elif origin is Annotated:
        yield from other_values(inner[0], value)
    elif origin is tuple:
        for last in other_values(inner[0], None):
            yield from ((last,), (*value[:-1], last))
    elif kind is bool:
        yield not value
    elif kind is int:
        yield from (value + 1 if isinstance(value, int) else 5, 1, 2, 3, 20)
    elif kind is float:
        yield from (value * 1.5 if isinstance(value, float) else 2.0, 0.5)
    elif kind is str:
        yield from (*STRINGS, Path("others.jsonl").absolute().as_uri())
    elif kind is Path:
        yield Path("others.jsonl")
    elif kind is NoneType:
        yield None
    else:
        raise AssertionError(f"say to what a parameter of type {kind} can be changed")


Make = Callable[[Session], Spec]
DISTILLED = ("flagembedding", "tevatron")
# Parameters to the artefact that they belong to, where one situation suffices.
MADE: dict[str, Make] = {
    "tune.word2vec": lambda p: stages.word2vec_model(p).spec(),
    "tune.bert_sts": lambda p: stages.bert_sts_model(p).spec(),
    "tune.sbert": lambda p: stages.sbert_model(p, Path("tuned")).spec(),
    "tune.fuse": lambda p: stages.fuse_model(p, Path("fuse3")).spec(),
    "neighbours": lambda p: stages.neighbour_table(p, "near").spec(),
    "export": lambda p: stages.lookup_export(p, "near", "train").spec(),
    "export.lookup": lambda p: stages.lookup_export(p, "near", "train").spec(),
}


def makers(place: str) -> list[tuple[Config, Make]]:
    """Return the artefact that a model's parameters belong to, in every situation in which some of them matter."""
    config = base()

    def each(field: str, *values: Any) -> list[Config]:
        return [with_value(config, place, field, value) for value in values]

    if place == "ingest":
        files = [
            Path("captions.jsonl"),
            Path("captions.csv"),
            Path("tokens.csv"),
            Path("scan"),
            Path("captions.parquet"),
            Path("captions.json"),
        ]
        read = [with_value(one, place, "format", one.ingest.path.suffix[1:] or "scan") for one in each("path", *files)]
        of_url = with_value(*each("path", None), place, "url", Path("captions.jsonl").absolute().as_uri())
        return [(one, lambda p: stages.ingestion(p).spec()) for one in (*read, of_url)]
    if place == "tune.sbert":
        return [(one, MADE[place]) for one in (config, *each("folds", 3))]
    if place in MADE:
        return [(config, MADE[place])]
    if place == "judge":
        for label in ("cider", "meteor"):
            fake(stages.judgement(session(config), label))
        kept = (stages.judgement, stages.figures, stages.ranking)
        return [(config, lambda p, m=make, of=of: m(p, of).spec()) for make in kept for of in ("cider", "meteor")]
    if place == "export.batches":
        fake(stages.neighbour_table(session(with_value(config, "neighbours", "candidates", "train")), "cider"))
        samplers = each("sampler", "random", "neighbour", "graded")
        return [(one, lambda p: stages.batches_export(p, "cider", "train").spec()) for one in samplers]
    if place == "export.wds":
        fake(stages.lookup_export(session(config), "near", "train"))
        layouts = (config, *each("shards", "shards"))
        return [(one, lambda p: stages.wds_export(p, "near", "train").spec()) for one in layouts]
    if place == "export.distillation":
        return [
            (config, lambda p, kind=kind: stages.format_export(p, kind, "near", "train").spec()) for kind in DISTILLED
        ]
    if (kind := place.removeprefix("export.")) in EXPORTS:
        split = "val" if kind == "candidates" else "train"  # people have judged val
        within = with_value(config, "neighbours", "candidates", split)
        for of in ("captions", "images"):
            fake(stages.neighbour_table(session(with_value(within, "neighbours", "queries", of)), "near"))
        if kind == "scan":  # images of two captions
            (config,) = each("captions_per_image", 2)
        if kind == "candidates":  # the tables have a width of 8
            (config,) = each("k", 2)
        return [(config, lambda p: stages.format_export(p, kind, "near", split).spec())]
    label = place.removeprefix("sources.")
    return [(config, lambda p: stages.encoding(p, label, "train").spec())]


def fields(place: str, model: type[BaseModel]) -> Iterator[tuple[str, str, Any]]:
    """Yield the parameters of a model and those inside it: location in params.yaml, name and type."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from fields(f"{place}.{name}".lstrip("."), info.annotation)
        elif place and name != "source":  # it chooses the model, and is no parameter of it
            yield place, name, info.annotation


FIELDS = [*fields("", Config)]
FIELDS += [one for name in SOURCES for one in fields(f"sources.{name}", source_class(name).spec.params)]

MOST = 131
"""Number of parameters, which may only fall. A value that no user sets is a constant."""


def test_there_are_no_more_parameters() -> None:
    assert len(FIELDS) <= MOST


def value_of(config: Config, place: str, field: str) -> Any:
    model: Any = config
    for name in place.split("."):
        model = model[name] if isinstance(model, Mapping) else getattr(model, name)
    return getattr(model, field)


def moves(config: Config, make: Make, place: str, field: str, values: Iterable[Any]) -> bool:
    """Return whether a value changes the fingerprint."""
    before = make(session(config)).fingerprint
    assert make(session(config)).fingerprint == before
    for value in values:
        with suppress(ValidationError, RelabelError):  # invalid in this situation
            if make(session(with_value(config, place, field, value))).fingerprint != before:
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("place", "field", "kind"), [pytest.param(*f, id=f"{f[0]}.{f[1]}") for f in FIELDS])
def test_a_parameter_changes_the_fingerprint_or_is_listed(place: str, field: str, kind: Any, folder: Path) -> None:
    if place.startswith("sources.") and field == "pooling":
        return
    situations = [(place, *one) for one in makers(place)]
    moved = False
    for at, config, make in situations:
        values = VALUES.get((place, field)) or other_values(kind, value_of(config, at, field))
        moved = moved or moves(config, make, at, field, values)
    assert moved != ((place, field) in SAME), SAME.get((place, field), "not listed as changing nothing")


@pytest.mark.parametrize("name", SOURCES)
def test_pooling_changes_only_artefacts_that_pool(name: str, folder: Path) -> None:
    """Check that pooling changes a judgement, neighbours and a lookup, but no encoding."""
    config = base()
    refused = source_class(name).spec.refused_poolings
    now = config.sources[name].pooling
    value = next(p for p in ("max", "mean", "first", "set") if p not in refused and p != now)
    both = session(config), session(with_value(config, f"sources.{name}", "pooling", value))
    source = config.source(name)
    assert len({stages.encoding(p, name, "train").spec().fingerprint for p in both}) == 1
    assert len({stages.judgement(p, name).spec().fingerprint for p in both}) == 2
    if source.supports("neighbours") is None:
        assert len({stages.neighbour_table(p, name).spec().fingerprint for p in both}) == 2
    if source.supports("lookup") is None:
        assert len({stages.lookup_export(p, name, "train").spec().fingerprint for p in both}) == 2


OTHER = Runtime(
    data=Path("elsewhere"),
    device="cuda",
    threads=7,
    memory=1 << 30,
    workers=3,
    shard=(2, 8),
    retry_failed=True,
)
OTHER = dataclasses.replace(OTHER, scheduler="tcp://127.0.0.1:8786", progress=Progress())


@pytest.mark.slow
@pytest.mark.parametrize(
    # `rebuild` would make stand-ins again.
    "field",
    [field.name for field in dataclasses.fields(Runtime) if field.name not in ("kept", "rows_per_shard", "rebuild")],
)
def test_resources_change_no_fingerprint(field: str, folder: Path) -> None:
    other = {field: getattr(OTHER, field)}
    assert other != {field: getattr(Runtime(), field)}
    for place in dict.fromkeys(place for place, *_ in FIELDS):
        for config, make in makers(place):
            assert make(session(config)).fingerprint == make(session(config, **other)).fingerprint, place


@pytest.mark.parametrize(
    "change",
    [{"text": "a sky!"}, {"caption_id": "77"}, {"image_id": "77"}, {"split": "val", "image_id": "78"}],
    ids=["text", "id", "image", "split"],
)
def test_one_changed_caption_changes_every_fingerprint(change: dict[str, str], folder: Path) -> None:
    before = session(base())
    artefacts = [stages.encoding(before, label, "train").spec().fingerprint for label in SOURCES]
    write_captions("captions.jsonl", TEXTS, **change)
    after = session(base())
    assert stages.ingestion(after).run()[1]
    for label, artefact in zip(SOURCES, artefacts, strict=True):
        for part in after.config.source(label).input_labels():
            fake(stages.encoding(after, part, "train"))
        assert stages.encoding(after, label, "train").spec().fingerprint != artefact


@pytest.mark.parametrize("name", SOURCES)
def test_the_version_of_an_encodings_files_is_in_its_fingerprint(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stages.encoding(session(base()), name, "train")
    fake(before)
    fingerprint = before.open().fingerprint
    others = {source: version_of("encoding", source) for source in SOURCES if source != name}
    changed = {kind: version_of(kind) for kind in ("manifest", "corpus", "tokens", *MODELS)}
    monkeypatch.setattr(manifest, "_versions", lambda: changed | {"encoding": {name: 99, **others}})
    today = stages.encoding(session(base()), name, "train")
    assert today.spec().fingerprint != fingerprint
    with pytest.raises(CheckError, match="version"):
        today.open()


def test_everything_that_is_written_has_a_version() -> None:
    kinds = {*EXPORTS, *MODELS, "corpus", "tokens", "neighbours", "neighbour_ids", "report", "page"}
    kinds |= {"judgement", "ranking", "scores", "figures"}
    assert {kind for kind in kinds if version_of(kind) is None} == set()
    assert {source for source in SOURCES if version_of("encoding", source) is None} == set()
    # relabel_train reads these without the file.
    formats = {"lookup": Description.FORMAT, "batches": BatchesDescription.FORMAT, "wds": SideCarDescription.FORMAT}
    assert {kind: version_of(kind) for kind in formats} == formats
