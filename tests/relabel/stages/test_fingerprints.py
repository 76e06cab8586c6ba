"""Contract: every parameter changes the fingerprint of the artefact whose values it can affect, or is listed with
the reason why it cannot. Resources (device, threads, memory) change none. A changed caption changes all.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from tests.relabel.stages.parameter_values import SAME, SETTINGS, SOURCE_SETTINGS, TEXTS, VALUES

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, RelabelError
from relabel.core.runtime import Progress, Runtime
from relabel.export import EXPORTS
from relabel.sources import SOURCES, source_class
from relabel.sources.bert_sts import tune as cross_tuning
from relabel.sources.fuse.model import Curve, Feature, FuseModel, Head, Part, without_rows
from relabel.sources.sbert import tune as encoder_tuning
from relabel.stages import Job, Project
from relabel.store import manifest
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import MODELS, Spec, version_of
from relabel_train.lookup.format import Description
from relabel_train.precomputed import BatchesDescription
from relabel_train.sidecar import SideCarDescription


def fake(job: Job) -> None:
    """Write a folder that has the fingerprint of an artefact and none of its files."""
    metadata = {"width": 8, "kind": "vectors", "rows": [0, 6], "neighbours": None, "split": "train"}
    recipe = dataclasses.replace(job.recipe, fill=lambda work: work.metadata.update(metadata))
    dataclasses.replace(job, recipe=recipe).run()


def write_shards(folder: str, keys: str) -> None:
    """Write a webdataset shard whose samples have a text and a JSON with another image id."""
    Path(folder).mkdir()
    with tarfile.open(f"{folder}/0.tar", "w") as tar:
        for key in keys:
            for name, content in ((f"{key}.txt", b"a dog"), (f"{key}.json", b'{"id": "9"}')):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, BytesIO(content))


@pytest.fixture(scope="module")
def built_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return ten captions of five images in three splits, two files of word vectors, and encodings without files.

    Stand-ins with fixed names replace the tagger and the sentence encoder.
    """
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("relabel.sources.cbow.tagger_version", lambda name: f"{name} 1")
        patch.setattr("relabel.sources.sbert.Sbert._files", lambda self, runtime: Model(self.params.model))
        patch.setattr("relabel.sources.bert_sts.BertSts._files", lambda self, runtime: Model(self.params.model))
        patch.setattr("relabel.sources.models.files.find_model", lambda name, *_: Model(name))
        patch.setattr(cross_tuning, "find_model", lambda name, *_: Model(name))
        patch.setattr(encoder_tuning, "find_model", lambda name, *_: Model(name))
        files = {"stsb": Path("words.txt"), "sick": Path("others.jsonl")}
        patch.setattr("relabel.sources.sbert.tune_data.find_sentence_pairs", lambda name, _: files[name])
        patch.setattr(
            cross_tuning, "find_stsb_files", lambda _: dict.fromkeys(("train", "dev", "test"), Path("words.txt"))
        )
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
    # With the columns of img2dataset's metadata as well.
    row = {"caption_id": "1", "image_id": "1", "split": "val", "text": "a dog", "key": "2", "status": "success"}
    pq.write_table(pa.Table.from_pylist([row]), "captions.parquet")
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
    project_of = project(base())
    stages.ingest(project_of).run()
    near = Part("cbow", False, without_rows(stages.encode(project_of, "near", "train").spec.config))
    for i, name in enumerate(("fuse", "fuse2")):
        head = Head((Curve(Feature("near", "max"), (0.0, 1.0), (0.0, i + 1.0)),))
        model = FuseModel({"near": near}, {"set": head, "single": head})
        build(Path(name), Recipe("fuse_model", name, lambda i=i: {"weight": i}, {}, model.write))
    for label in project_of.config.sources:
        for split in ("train", "val", "test", "all"):
            fake(stages.encode(project_of, label, split))


@dataclasses.dataclass
class Model:
    name: str

    def sha256(self) -> str:
        return self.name


def write_captions(file: str, texts: tuple[str, ...], **last_line: str) -> None:
    lines = []
    for i, text in enumerate(texts):
        split = ("train", "train", "train", "val", "test")[i // 2]
        line = {"caption_id": str(i), "image_id": str(i // 2), "split": split, "text": text}
        line |= {"text2": "unused"} | (last_line if i == len(texts) - 1 else {})
        lines.append(json.dumps(line | {"other": line["text"] + "!"}) + "\n")
    Path(file).write_text("".join(lines), encoding="utf-8")


def base() -> Config:
    sources = {label: {"source": label} | values for label, values in SOURCE_SETTINGS.items()}
    return load_config(None, SETTINGS, {"sources": sources})


def project(config: Config, **runtime: Any) -> Project:
    return Project(config, Runtime(**runtime))


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


def other_values(place: str, field: str, info: FieldInfo, value: Any) -> list[Any]:
    """Return all other values of a small type, or one other value of a large one."""
    if (place, field) in VALUES:
        return VALUES[place, field]
    if (place, field) == ("ingest", "url"):
        return [Path("others.jsonl").absolute().as_uri()]
    kind = info.annotation
    if get_origin(kind) in (Union, UnionType):
        kind = next(a for a in get_args(kind) if a is not type(None))
    if get_origin(kind) is Literal:
        return [v for v in get_args(kind) if v != value]
    if kind is bool:
        return [not value]
    if kind is int and value is not None:
        return [value + 1]
    if kind is float:
        return [value * 1.5 or 0.5]
    raise AssertionError(f"say in VALUES to what {place}.{field} can be changed")


def corpus_spec(project_of: Project) -> Spec:
    """Return the spec of the corpus that would be ingested."""
    return stages.ingest(project_of).spec


Make = Callable[[Project], Spec]


def makers(place: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, Make]]:
    """Return the artefact that a model's parameters belong to, in every situation in which some of them matter."""
    config = base()
    if place == "ingest":
        formats = {"jsonl": "captions.jsonl", "csv": "captions.csv", "scan": "scan", "parquet": "captions.parquet"}
        each = [with_value(with_value(config, place, "path", Path(p)), place, "format", f) for f, p in formats.items()]
        url = Path("captions.jsonl").absolute().as_uri()
        each.append(with_value(with_value(config, place, "path", None), place, "url", url))
        return [(one, lambda p: corpus_spec(p)) for one in each]
    if place == "tune.cbow":
        return [(config, lambda p: stages.tune_cbow(p).spec)]
    if place == "tune.bert_sts":
        return [(config, lambda p: stages.tune_bert_sts(p).spec)]
    if place == "tune.sbert":
        each = [config, with_value(config, place, "folds", 3)]
        return [(one, lambda p: stages.tune_sbert(p, Path("tuned")).spec) for one in each]
    if place == "tune.fuse":
        return [(config, lambda p: stages.tune_fuse(p, Path("fuse3")).spec)]
    if place == "encode":
        return [(config, lambda p: stages.encode(p, "cider", "train").spec)]
    if place == "judge":
        for label in ("cider", "meteor"):
            fake(stages.judge(project(config), label))
        kept = (stages.judge, stages.figures, stages.ranking)
        each = [(make, name) for make in kept for name in ("cider", "meteor")]
        return [(config, partial(lambda make, name, p: make(p, name).spec, *one)) for one in each]
    if place == "neighbours":
        return [(config, lambda p: stages.neighbours(p, "near").spec)]
    if place == "export":
        return [(config, lambda p: stages.export_lookup(p, "near", "train").spec)]
    if place == "export.lookup":
        return [(config, lambda p: stages.export_lookup(p, "near", "train").spec)]
    if place == "export.batches":
        fake(stages.neighbours(project(with_value(config, "neighbours", "candidates", "train")), "cider"))
        samplers = [with_value(config, place, "sampler", sampler) for sampler in ("random", "neighbour", "graded")]
        return [(each, lambda p: stages.export_batches(p, "cider", "train").spec) for each in samplers]
    if place == "export.wds":
        fake(stages.export_lookup(project(config), "near", "train"))
        each = [config, with_value(config, place, "shards", "shards")]
        return [(one, lambda p: stages.export_wds(p, "near", "train").spec) for one in each]
    if (kind := place.removeprefix("export.")) in EXPORTS:
        split = "val" if kind == "candidates" else "train"  # people have judged val
        within = with_value(config, "neighbours", "candidates", split)
        for of in ("captions", "images"):
            fake(stages.neighbours(project(with_value(within, "neighbours", "queries", of)), "near"))
        if kind == "scan":  # images of two captions
            config = with_value(config, place, "captions_per_image", 2)
        if kind == "candidates":  # the tables have a width of 8
            config = with_value(config, place, "k", 2)
        return [(config, lambda p: stages.export(p, kind, "near", split).spec)]
    label = place.removeprefix("sources.")
    labels = [label, "ladder"] if label == "cbow" else [label]
    return [(config, partial(lambda name, p: stages.encode(p, name, "train").spec, name)) for name in labels]


def models() -> dict[str, type[BaseModel]]:
    """Return every parameter model by its location in params.yaml."""
    models_by_place: dict[str, type[BaseModel]] = {}

    def walk(place: str, model: type[BaseModel]) -> None:
        inner = {n: i.annotation for n, i in model.model_fields.items()}
        own_fields = [n for n, kind in inner.items() if not (isinstance(kind, type) and issubclass(kind, BaseModel))]
        if own_fields and place:
            models_by_place[place] = model
        for name, kind in inner.items():
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                walk(f"{place}.{name}".lstrip("."), kind)

    walk("", Config)
    return models_by_place | {f"sources.{name}": source_class(name).spec.params for name in SOURCES}


def fields() -> Iterator[tuple[str, str, FieldInfo]]:
    for place, model in models().items():
        for name, info in model.model_fields.items():
            if not (isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)):
                yield place, name, info


@pytest.mark.slow
@pytest.mark.parametrize(("place", "field", "info"), [pytest.param(*f, id=f"{f[0]}.{f[1]}") for f in fields()])
def test_a_parameter_changes_the_fingerprint_or_is_listed(
    place: str, field: str, info: FieldInfo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place.startswith("sources.") and field == "pooling":
        return
    moved = 0
    for config, make in makers(place, monkeypatch):
        before = make(project(config)).fingerprint
        assert make(project(config)).fingerprint == before
        labels = [place, "sources.ladder"] if place == "sources.cbow" else [place]
        for at in labels:
            model: Any = config
            for name in at.split("."):
                model = model[name] if isinstance(model, Mapping) else getattr(model, name)
            for value in other_values(place, field, info, getattr(model, field)):
                try:
                    now = make(project(with_value(config, at, field, value))).fingerprint
                except (ValidationError, RelabelError):  # invalid in this situation
                    continue
                moved += now != before
    assert bool(moved) != ((place, field) in SAME), SAME.get((place, field), "not listed as changing nothing")


@pytest.mark.parametrize("name", SOURCES)
def test_pooling_changes_only_artefacts_that_pool(name: str, folder: Path) -> None:
    """Check that pooling changes a judgement, neighbours and a lookup, but no encoding."""
    config = base()
    refused = source_class(name).spec.refused_poolings
    now = config.sources[name].pooling
    value = next(p for p in ("max", "mean", "first", "set") if p not in refused and p != now)
    before, after = project(config), project(with_value(config, f"sources.{name}", "pooling", value))
    assert stages.encode(before, name, "train").spec == stages.encode(after, name, "train").spec
    assert stages.judge(before, name).spec.fingerprint != stages.judge(after, name).spec.fingerprint
    if before.config.source(name).supports("neighbours") is None:
        one, two = (stages.neighbours(p, name).spec.fingerprint for p in (before, after))
        assert one != two
    if before.config.source(name).supports("lookup") is None:
        one, two = (stages.export_lookup(p, name, "train").spec.fingerprint for p in (before, after))
        assert one != two


RUNTIME: dict[str, Any] = {
    "data": Path("elsewhere"),
    "device": "cuda",
    "threads": 7,
    "memory": 1 << 30,
    "workers": 3,
    "scheduler": "tcp://127.0.0.1:8786",
    "shard": (2, 8),
    "progress": Progress(),
    "replace": True,
    "kept": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Runtime)])
def test_resources_change_no_fingerprint(field: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in models():
        for config, make in makers(place, monkeypatch):
            plain, other = project(config), project(config, **{field: RUNTIME[field]})
            assert make(plain).fingerprint == make(other).fingerprint, place


@pytest.mark.parametrize(
    "change",
    [{"text": "a sky!"}, {"caption_id": "77"}, {"image_id": "77"}, {"split": "val", "image_id": "78"}],
    ids=["text", "id", "image", "split"],
)
def test_one_changed_caption_changes_every_fingerprint(change: dict[str, str], folder: Path) -> None:
    before = project(base())
    artefacts = [stages.encode(before, label, "train").spec.fingerprint for label in SOURCES]
    write_captions("captions.jsonl", TEXTS, **change)
    after = project(base())
    assert stages.ingest(after).run()[1]
    for label, artefact in zip(SOURCES, artefacts, strict=True):
        for part in after.config.source(label).input_labels():
            fake(stages.encode(after, part, "train"))
        assert stages.encode(after, label, "train").spec.fingerprint != artefact


@pytest.mark.parametrize("name", SOURCES)
def test_the_version_of_an_encodings_files_is_in_its_fingerprint(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stages.encode(project(base()), name, "train")
    fake(before)
    fingerprint = before.open().fingerprint
    others = {source: version_of("encoding", source) for source in SOURCES if source != name}
    changed = {kind: version_of(kind) for kind in ("manifest", "corpus", "tokens", *MODELS)}
    monkeypatch.setattr(manifest, "_versions", lambda: changed | {"encoding": {name: 99, **others}})
    today = stages.encode(project(base()), name, "train")
    assert today.spec.fingerprint != fingerprint
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
