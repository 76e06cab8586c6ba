"""Contract: after a change, a reader gives what a build from nothing gives under today's captions and parameters, or
refuses and names what differs. No reader gives another number without a word, whatever was changed and whichever of
the artefacts was built again since. The setting that a refusal names gives what there was before the change.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from contextlib import chdir
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from tests.relabel.published import images_of_captions
from tests.relabel_cli.runner import contents, invoke

import relabel
from relabel import stages
from relabel.config import load_config
from relabel.core.errors import RelabelError
from relabel.core.runtime import Runtime
from relabel.sources.fuse.model import KIND, FuseModel, Part, without_rows
from relabel.stages import Session
from relabel.store.artefact import Recipe, build
from relabel_train.scoring.fuse import Curve, Feature, Head

PARAMS: dict[str, Any] = {
    "ingest": {"dataset": "mine", "format": "jsonl", "path": "captions.jsonl"},
    "tune": {"word2vec": {"tokenizer": "lower_split", "width": 4, "min_count": 1, "epochs": 1}},
    "neighbours": {"k": 8},
    "judge": {"split": "val", "resamples": 5},
    "export": {
        "batches": {"sampler": "neighbour", "batch_size": 10, "k": 3},
        "trec": {"queries": "images"},
        "pairs": {"count": 300},
        "tuples": {"count": 300},
    },
    "sources": {
        "words": {"source": "cbow", "vectors": "words.txt", "tokenizer": "lower_split", "pooling": "max"},
        "cider": {"source": "cider", "tokenizer": "lower_split", "sigma": 6.0},
        "trained": {"source": "cbow", "vectors": "word2vec", "tokenizer": "lower_split"},
        "fuse": {"source": "fuse", "model": "fuse", "gate": "words"},
    },
}
PARAMS["ingest"]["namespace"] = "coco"
WORDS = ["a", "dog", "cat", "bird", "man", "on", "hill", "chair", "road", "bus", "red", "big", "runs", "sits"]
SPLITS = {"train": 10, "val": 20, "test": 10}
"""Images of each split, of five captions each. Labels are of val, whose captions and images do not start at row 0."""

NEAR = tuple(f"neighbours --label L --candidates val --queries {queries}" for queries in ("captions", "images"))
ENCODE, LOOKUP = "encode --label L --split val", "export lookup --label L --split val"
TUNE = "tune word2vec"
JUDGE = "correlate --cxc --label L --split val"
TABLES = (ENCODE, *NEAR, JUDGE, LOOKUP)
"""What makes everything of a label: its encoding, neighbours, judgement with calibration, and lookup."""
_TRAINER = "--features features --captions labels/mine/corpus --device cpu --json"
_SIZES = "--set val=test --set model.embed_dim=8 --set model.word_dim=6 --set min_count=1 --set log_every=1"
_FIT = f"fit {_TRAINER} --split val --batch-size 16 --epochs 1 {_SIZES}"
_GRADED = "--loss soft_target --lookup labels/mine/exports/val/lookup/L"
FORMATS = ("wds", "batches", "trec", "hf", "pairs", "tuples", "faiss", "lookup")
"""Exports of an encoding; the side-car reads the lookup, so it comes first."""
COMMANDS = {
    **{kind: (f"export {kind} --label L --split val", f"exports/val/{kind}/L") for kind in FORMATS},
    "batches": ("export batches --label L --split val --name p", "exports/val/batches/p"),
    "ids": ("export neighbours --label L --split val", "exports/val/neighbours/captions/L"),
    "ids of images": ("export neighbours --label L --split val --queries images", "exports/val/neighbours/images/L"),
    "neighbours": (NEAR[0], "neighbours/val/captions/L"),
    "neighbours of images": (NEAR[1], "neighbours/val/images/L"),
    "encode": (ENCODE, "encodings/val/L"),
    "report": ("report --label L --split val", "page/val"),
    "correlate": ("correlate --cxc --label L --json", None),
    "nearest": ("nearest --json --id ID --label L --split val", None),
    "false-negatives": ("false-negatives --json --label L --split val --threshold 0.3", None),
    "fit": (f"{_FIT} {_GRADED} --out runs/new", None),
    "fit of a plan": (f"{_FIT} --loss soft_target --batches labels/mine/exports/val/batches/p --out runs/new", None),
    "eval": (f"eval {_TRAINER} --run runs/base --split val --lookup labels/mine/exports/val/lookup/L", None),
}
"""Reader to its command for a label L, and the folder that it writes; None where its output is the result."""
TRAINERS = ("fit of a plan", "fit", "eval")
NEAREST = ("ids", "ids of images", "neighbours", "neighbours of images")
CALLS = ("load", "export_label")
READERS = (*TRAINERS, *CALLS, "nearest", "false-negatives", *FORMATS, *NEAREST)
"""Readers that leave what the readers after them read as it is."""
BUILDERS = ("correlate", "report", "encode")
"""Readers that bring up to date what they read; each gets a project of its own."""
VECTORS = ("tuples", "faiss")
"""Readers that take vectors alone."""


class RefusedError(Exception):
    """A reader refused."""


class State(NamedTuple):
    """A label, edits of params.yaml by dotted name, which captions there are, and the weight of the fuse."""

    label: str
    edits: Mapping[str, Any] = {}
    captions: str = "first"
    fuse: int = 1


class Change(NamedTuple):
    """What happens to a project in which everything was made of one label.

    `edits`: dotted parameters of params.yaml to their values afterwards; `before`: those before. `commands`: run
    afterwards. `faults`: what a refusal names, one of these. `refuse`: the readers that refuse. `captions`: which there
    are afterwards, see `write_captions`. `fuse`: weight of the fuse afterwards.
    """

    label: str
    edits: Mapping[str, Any] = {}
    commands: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    before: Mapping[str, Any] = {}
    captions: str = "first"
    fuse: int = 1


MEAN, SIGMA, WIDTH = {"sources.words.pooling": "mean"}, {"sources.cider.sigma": 3.0}, {"tune.word2vec.width": 5}
INDEX, NO_INDEX = {"neighbours.index": "IVF4,Flat"}, {"neighbours.index": None}
AS_CIDER = {"sources.words": {"source": "cider", "tokenizer": "lower_split"}}
MEAN_ONCE = tuple(f"{command} --set sources.words.pooling=mean" for command in (*NEAR, LOOKUP))
SIGMA_ONCE, WIDTH_ONCE = (f"{ENCODE} --set sources.cider.sigma=3",), (f"{TUNE} --width 5",)
OTHER_CORPUS = ("another corpus. Run `relabel tune word2vec --dataset mine`",)
_NEAR_EXPORTS = ("export_label", "wds", "batches", "trec", "hf", "pairs", "tuples", "lookup")
STALE_NEAR = (*_NEAR_EXPORTS, "ids", "ids of images", "false-negatives")
"""Readers of neighbours that no longer are today's."""
STALE = (*STALE_NEAR, "load", "nearest", "faiss", "neighbours", "neighbours of images")
"""Readers of an encoding that no longer is today's."""
UNTRAINED = (*STALE, "encode")
"""Readers of a model that no longer is today's."""
UNMADE = (*STALE, *BUILDERS)
CHANGES = {
    "nothing": Change("words"),
    "pooling edited": Change("words", MEAN, (), ("pooling ('max' there, 'mean' here)",), STALE_NEAR),
    "pooling edited, all": Change("words", MEAN, TABLES),
    "pooling of one command": Change("words", {}, MEAN_ONCE, ("pooling ('mean' there, 'max' here)",), STALE_NEAR),
    "sigma edited": Change("cider", SIGMA, (), ("sigma (6.0 there, 3.0 here)",), STALE),
    "sigma edited, encoded": Change("cider", SIGMA, (ENCODE,), ("another encoding",), STALE_NEAR),
    "sigma of one command": Change("cider", {}, SIGMA_ONCE, ("sigma (3.0 there, 6.0 here)",), STALE),
    "source edited": Change("words", AS_CIDER, (), ("source ('cbow' there, 'cider' here)", "vectors"), STALE),
    "model edited": Change("trained", WIDTH, (), ("width (4 there, 5 here)",), UNTRAINED),
    "model trained": Change("trained", WIDTH, (TUNE,), ("vectors", "another encoding"), STALE),
    "model of one command": Change("trained", {}, WIDTH_ONCE, ("width (5 there, 4 here)",), UNTRAINED),
    "model of other captions": Change("trained", {}, ("ingest",), OTHER_CORPUS, UNTRAINED, captions="second"),
    "k edited": Change("words", {"neighbours.k": 5}, (), ("k (8 there, 5 here)",), STALE_NEAR),
    "index removed": Change("words", NO_INDEX, (), ("index ('IVF4,Flat' there, None here)",), STALE_NEAR, INDEX),
    "sampler edited": Change("words", {"export.batches.sampler": "graded"}),
    "fuse fitted": Change("fuse", {}, (), ("model",), STALE, fuse=2),
    "gate edited": Change("fuse", {"sources.fuse.gate": "cider"}, (), ("gate",), STALE),
    "pooling of the gate": Change("fuse", MEAN, (), ("pooling of the gate ('max' there, 'mean' here)",), STALE_NEAR),
    "part edited": Change("fuse", SIGMA, (), ("sigma",), UNMADE),
    "part edited, encoded": Change("fuse", SIGMA, (ENCODE.replace("L", "cider"),), ("cider",), UNMADE),
    "captions edited": Change("words", {}, ("ingest",), ("corpus",), (*TRAINERS, *STALE), captions="second"),
    "captions edited, all": Change("words", {}, ("ingest", *TABLES), ("corpus",), TRAINERS[:1], captions="second"),
    "split edited": Change("words", {}, ("ingest",), ("corpus",), STALE, captions="fewer"),
}


@dataclass(frozen=True)
class Folder:
    """Working directory of a user."""

    path: Path

    def relabel(self, command: str, label: str = "", settings: str = "") -> str:
        """Run a command, in which L stands for the label; return its output, or raise RefusedError."""
        words = [{"L": label, "ID": f"coco:{_ids()['val'][0][1]}"}.get(word, word) for word in command.split()]
        words = [re.sub(r"/L$", f"/{label}", word) for word in words]
        with chdir(self.path):
            code, output = invoke(*words, *shlex.split(settings))
        if code:
            raise RefusedError(f"{code}: {output}")
        return output

    def write_params(self, edits: Mapping[str, Any]) -> None:
        """Write params.yaml with some values edited."""
        params = deepcopy(PARAMS)
        for name, value in edits.items():
            *above, last = name.split(".")
            section = params
            for key in above:
                section = section[key]
            section[last] = value
        (self.path / "params.yaml").write_text(yaml.safe_dump(params))

    def write_captions(self, which: str) -> None:
        """Write captions: the first, the second with other texts, or the first with fewer images in val."""
        rng = np.random.default_rng(which == "second")
        rows = [
            {"caption_id": caption, "image_id": image, "split": split, "text": " ".join(rng.choice(WORDS, 6))}
            for split, ids in _ids().items()
            for image, caption in ids
        ]
        if which == "fewer":
            moved = [row for row in rows if row["split"] == "val"][-10:]
            rows = [row | {"split": "test"} if row in moved else row for row in rows]
        (self.path / "captions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def write_fuse(self, weight: int) -> None:
        """Write the model of a fuse of words and cider."""
        with chdir(self.path):
            session = Session(load_config(Path("params.yaml")), Runtime(threads=1))
            parts = {}
            for label in ("words", "cider"):
                config = without_rows(stages.encoding(session, label, "val").spec().config)
                parts[label] = Part(PARAMS["sources"][label]["source"], False, config)
            rises = zip(parts, (0.05 * weight, 0.02), strict=True)
            head = Head(tuple(Curve(Feature(label, "max"), (0.0, 10.0), (0.05, 10 * rise)) for label, rise in rises))
            model = FuseModel(parts, {"set": head, "single": head})
            build(Path("fuse"), Recipe(KIND, "fuse", lambda: {"weight": weight}, {}, model.write))

    def build(self, state: State) -> None:
        """Make everything that the readers read."""
        self.relabel("ingest")
        if state.label == "trained":
            self.relabel(TUNE)
        if state.label == "fuse":
            for part in ("words", "cider"):
                self.relabel(ENCODE, part)
            self.write_fuse(state.fuse)
        for command in TABLES if state.label != "fuse" else TABLES[:-1]:
            self.relabel(command, state.label)

    def read(self, reader: str, label: str, settings: str = "") -> Any:
        """Run a reader, perhaps with settings of one command; return what it gives."""
        if reader in CALLS:
            return self.call(reader, label)
        command, out = COMMANDS[reader]
        shutil.rmtree(self.path / "runs/new", ignore_errors=True)
        result = self.relabel(command, label, settings)
        if reader.startswith("fit"):
            log = [json.loads(line) for line in (self.path / "runs/new/log.jsonl").read_text().splitlines()]
            return [[line.get("loss"), line.get("rsum")] for line in log]
        if out is None:
            # Warnings follow the result.
            return json.JSONDecoder().raw_decode(result)[0]
        return files_of(self.path / "labels/mine" / re.sub(r"\bL$", label, out))

    def call(self, reader: str, label: str) -> Any:
        """Call a function of `import relabel`."""
        try:
            with chdir(self.path):
                runtime = Runtime(threads=1)
                if reader == "export_label":
                    return files_of(relabel.export_label("labels/mine", "trec", label, "val", runtime=runtime))
                opened = relabel.load("labels/mine", label, "val", runtime=runtime)
                return opened.block(opened.image_ids, opened.caption_ids).tolist()
        except RelabelError as error:
            raise RefusedError(f"{error.exit_code}: {error}") from error


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of an artefact but for its manifest."""
    return {name: body for name, body in contents(folder).items() if body is not None and name != "manifest.json"}


@cache
def _ids() -> dict[str, list[tuple[str, str]]]:
    """Return image and caption ids of each split; those of val are judged in CxC."""
    first, ids = 0, dict[str, list[tuple[str, str]]]()
    for split, images in SPLITS.items():
        ids[split] = [(f"{m}", f"{5 * m + i}") for m in range(first, first + images) for i in range(5)]
        first += images
    judged = sorted((image[5:], caption[5:]) for caption, image in images_of_captions().items())
    return ids | {"val": judged[: len(ids["val"])]}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a project of 200 captions with words, features and a trained model, in which no label was made."""
    folder, rng = Folder(tmp_path_factory.mktemp("empty")), np.random.default_rng(3)
    folder.write_params({})
    folder.write_captions("first")
    lines = [" ".join([word, *(f"{x:.4f}" for x in rng.normal(size=8))]) for word in WORDS]
    (folder.path / "words.txt").write_text("\n".join(lines) + "\n")
    (folder.path / "features").mkdir()
    for split, ids in _ids().items():
        name, images = {"val": "dev"}.get(split, split), list(dict.fromkeys(image for image, _ in ids))
        np.save(folder.path / f"features/{name}_ims.npy", rng.normal(size=(len(images), 3, 8)).astype(np.float32))
        (folder.path / f"features/{name}_ids.txt").write_text("".join(f"{image}\n" for image in images))
    folder.relabel("ingest")
    folder.relabel(f"{_FIT} --out runs/base")
    return folder


@dataclass
class Projects:
    """Copies of the empty project, each built from nothing once, and what its readers give."""

    empty: Folder
    root: Path
    built: dict[str, Folder] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)

    def build(self, state: State) -> Folder:
        """Return the project of a label in which everything was made once."""
        if (key := repr(state)) not in self.built:
            folder = Folder(shutil.copytree(self.empty.path, self.root / str(len(self.built))))
            folder.write_params(state.edits)
            folder.write_captions(state.captions)
            folder.build(state)
            self.built[key] = folder
        return self.built[key]

    def read(self, reader: str, state: State) -> Any:
        """Return what a reader gives in the project that was built from nothing."""
        if (key := f"{reader} {state}") not in self.given:
            folder = self.build(state)
            if reader in BUILDERS:
                folder = Folder(shutil.copytree(folder.path, self.root / f"{len(self.given)} read"))
            if reader == "fit of a plan":
                self.read("batches", state)
            self.given[key] = folder.read(reader, state.label)
        return self.given[key]


@pytest.fixture(scope="module")
def projects(empty: Folder, tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Return the projects that changes are made to and compared with."""
    return Projects(empty, tmp_path_factory.mktemp("projects"))


def readers_of(case: Change) -> list[str]:
    """Return the readers that apply to the label of a change, in an order in which each sees the changed project."""
    # Trainers know captions and no parameters; their features are of the images of the first splits.
    trained = case.label == "words" and (case == CHANGES["nothing"] or case.captions == "second")
    left_out: tuple[str, ...] = () if trained else TRAINERS
    if case.label == "fuse":
        left_out += (*VECTORS, "lookup", "wds")
    if case.label == "cider" or case.edits == AS_CIDER:
        left_out += VECTORS
    return [reader for reader in READERS if reader not in left_out]


def test_batches_are_compared_under_the_sampler_that_they_were_made_with(projects: Projects, tmp_path: Path) -> None:
    """Check `fit` on batches of other options than params.yaml, and that their neighbours and pooling are compared."""
    folder, batches = (
        Folder(shutil.copytree(projects.build(State("words")).path, tmp_path / "p")),
        "exports/val/batches",
    )
    options = {"near": "", "far": "--sampler random", "images": "--items images --sampler graded --batch-size 8"}
    for name, given in options.items():
        folder.relabel(f"export batches --label words --split val --name {name} {given}")
    fit = f"{_FIT} --loss soft_target --batches labels/mine/{batches}/"
    images = f"{_FIT} --loss log_ratio --set image_labels=labels/mine/{batches}/images --batches labels/mine/{batches}/"
    for name in options:
        folder.relabel(f"{images if name == 'images' else fit}{name} --out runs/{name}")
    folder.write_params({"neighbours.k": 5, "export.batches.sampler": "random"})
    folder.relabel(f"{fit}far --out runs/far")
    for name, command in (("near", fit), ("images", images)):
        with pytest.raises(RefusedError, match=r"k \(8 there, 5 here\)"):
            folder.relabel(f"{command}{name} --out runs/{name}")


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_gives_todays_numbers_or_names_what_differs(change: str, projects: Projects, tmp_path: Path) -> None:
    case = CHANGES[change]
    if case.label == "trained":
        pytest.importorskip("gensim")
    start = State(case.label, case.before)
    today = State(case.label, case.edits, case.captions, case.fuse)
    for reader in readers_of(case):
        if reader in FORMATS:
            projects.read(reader, start)
    folder = Folder(shutil.copytree(projects.build(start).path, tmp_path / "changed"))
    folder.write_params(case.edits)
    folder.write_captions(case.captions)
    if case.fuse != 1:
        folder.write_fuse(case.fuse)
    for command in case.commands:
        folder.relabel(command, case.label)
    refused, kept, wrong = list[str](), list[str](), list[str]()

    def check(reader: str, place: Folder) -> None:
        try:
            given = place.read(reader, case.label)
        except RefusedError as error:
            refused.append(reader)
            if str(error)[0] not in "234" or not any(fault in str(error) for fault in case.faults):
                wrong.append(f"{reader}: {str(error)[-400:]}")
            advice = re.search(r"Add `(--set .*?)` to keep it", str(error))
            # What a command made with other parameters has no reader here.
            if advice and reader not in CALLS and not case.commands:
                kept.append(reader)
                if place.read(reader, case.label, advice[1]) != projects.read(reader, start):
                    wrong.append(f"{reader} with {advice[1]}: not what there was before")
            return
        if given != projects.read(reader, today):
            wrong.append(f"{reader}: not what a build from nothing gives")

    for reader in BUILDERS:
        check(reader, Folder(shutil.copytree(folder.path, tmp_path / reader)))
    for reader in readers_of(case):
        check(reader, folder)
    assert not wrong, "\n".join(wrong)
    assert sorted(refused) == sorted({*case.refuse} & {*readers_of(case), *BUILDERS})
    assert kept or case.commands or case.edits == AS_CIDER or not set(refused) - set(CALLS) or case.fuse != 1
