"""Every stage in an order that satisfies its inputs, on 250 of COCO's captions, and the folder after each."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.drills.nursery import Nursery, RunResult
from tests.relabel_cli.runner import one_thread

from relabel.corpus import Corpus
from relabel.sources.spice.parse_cache import FILE as CACHE
from relabel.store.artefact import WORK
from relabel.store.manifest import MANIFEST
from relabel_train.reference.files import load_checkpoint

PARAMS = """
ingest:
  {dataset: drill, namespace: coco, format: jsonl, path: captions.jsonl, rows_per_shard: 90}
tune:
  cbow: {splits: [train, val, test], tokenizer: lower_split, width: 8, min_count: 1, epochs: 1}
  bert_sts: {base: models/tiny, epochs: 1, batch_size: 8, precision: float32}
  sbert: {base: models/tiny, folds: 2, epochs: 1, layers: 1}
  fuse: {parts: [tuned, sbert, cbow, cider], folds: 2}
encode: {rows_per_shard: 90}
neighbours: {k: 10}
judge: {split: val, resamples: 5}
export: {labels: [cider]}
sources:
  same_image: {source: same_image}
  cider: {source: cider, tokenizer: lower_split}
  cider_ptb: {source: cider, tokenizer: ptb}
  cbow: {source: cbow, tokenizer: lower_split, vectors: word2vec}
  sbert: {source: sbert, model: models/tiny}
  tuned: {source: sbert, model: data/tuned}
  wmd: {source: wmd, tokenizer: lower_split, vectors: word2vec}
  spice: {source: spice}
  meteor: {source: meteor}
  bert_sts: {source: bert_sts, gate: cbow, threshold: 0.9}
  fuse: {source: fuse, gate: cider, gate_top: 20}
"""
EXPERIMENTS = """
proxy_features: {train: 8, val: 6, test: 4, vectors: 3, model: models/tiny}
fit_table:
  train_labels: [sbert]
  judge: sbert
  ncs: cider
  rows: {one: {loss: [bcls]}}
  models: {vsepp: {embed_dim: 8}}
  lrs: [0.001, 0.002]
  extend: 0
  search_seeds: [0]
  seeds: [1]
  epochs: 1
  batch_size: 8
  neighbours: 10
  graded: 4
"""
JAVA = ("cider_ptb", "meteor")
"""Labels of which a stage starts Java."""
_ENCODED = ("same_image", "cider", "cider_ptb", "cbow", "sbert", "wmd", "spice", "meteor")
_FIT = ("fit", "--features", "labels/drill/proxy", "--captions", "labels/drill_proxy/corpus", "--lookup")
_FIT += ("labels/drill_proxy/exports/all/lookup/sbert", "--loss", "bcls", "--out", "runs/fit", "--epochs", "3")
_FIT += (
    "--batch-size",
    "8",
    *(f"--set={one}" for one in ("embed_dim=8", "word_dim=8", "save_every=2", "log_every=1", "min_count=1")),
)
_INDEX = ("--set", "neighbours.index=IVF4,Flat")
MORE = ("ingest", "--path", "more.jsonl", "--replace")
_OF_MORE = ("--set", "ingest.path=more.jsonl")
STAGES: tuple[tuple[str, ...], ...] = (
    ("fetch", "eccv"),
    ("ingest",),
    ("tune", "cbow"),
    *(("encode", "--label", label, "--split", "all") for label in _ENCODED),
    ("tune", "bert_sts"),
    ("encode", "--label", "bert_sts", "--split", "all"),
    ("tune", "sbert", "--out", "data/tuned"),
    ("tune", "fuse"),
    *(("encode", "--label", label, "--split", "all") for label in ("tuned", "fuse")),
    *(("neighbours", "--label", label) for label in ("sbert", "cider", "spice", "wmd", "bert_sts", "fuse")),
    ("neighbours", "--label", "cider", "--queries", "images"),
    ("neighbours", "--label", "cbow", *_INDEX),
    *(("export", "lookup", "--label", label, "--split", "all") for label in ("cider", "spice", "fuse")),
    ("export", "lookup", "--label", "cbow", "--split", "all", *_INDEX),
    ("export", "wds", "--label", "cbow", "--split", "all", "--captions-per-shard", "90", *_INDEX),
    ("export", "batches", "--label", "cider", "--split", "train", "--batch-size", "8", "--sampler", "neighbour"),
    ("export", "batches", "--label", "meteor", "--split", "train", "--batch-size", "16", "--name", "pairs"),
    ("encode", "--label", "same_image", "--split", "val"),  # `tune fuse` has made that of cider
    ("correlate", "--cxc", "--split", "val", "--label", "cider,same_image"),
    ("experiments.proxy_features", "--experiments", "experiments.yaml"),
    ("experiments.fit_table", "--experiments", "experiments.yaml"),
    _FIT,
    MORE,
    *(("encode", "--label", label, "--split", "all", *_OF_MORE) for label in ("sbert", "spice")),
    *(("neighbours", "--label", label, *_OF_MORE) for label in ("sbert", "spice")),
)
"""All stages; the last five bring encodings and neighbours up to date after captions were added."""


def possible(stages: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Skip the stages that need Java if there is none."""
    return stages if has_java() else tuple(stage for stage in stages if not any(word in JAVA for word in stage))


def has_java() -> bool:
    """Return whether Java is found."""
    from relabel.core.errors import MissingError
    from relabel.core.java import find_java

    try:
        return bool(find_java())
    except MissingError:
        return False


def title(stage: tuple[str, ...]) -> str:
    """Name a stage by its words and labels, without numbers."""
    words = [w for w in stage if not (w.startswith("-") or w.isdigit() or set(w) & set("/=."))]
    return " ".join(words[:1] if stage[0] == "fit" else [w for w in words if w not in ("all", "train", "val")])


@dataclass(frozen=True)
class Step:
    """A stage that ran undisturbed.

    Attributes
    ----------
    stage : tuple of str
    before, after : Path
        The folder before and after it; tests must not change them.
    calls : int
        Number of calls that changed the disk.
    seconds : float
    """

    stage: tuple[str, ...]
    before: Path
    after: Path
    calls: int
    seconds: float

    @property
    def title(self) -> str:
        """Name of the stage."""
        return title(self.stage)


@dataclass
class Trail:
    """All stages, undisturbed, in a process that forks a child per run.

    Attributes
    ----------
    nursery : Nursery
    root : Path
        Folder of `steps`; disturbed runs take place in `root/here`, under the same path as the undisturbed ones.
    steps : list of Step
    only : tuple of str
        Beginnings of the titles of the steps that `shares` selects.
    """

    nursery: Nursery
    root: Path
    steps: list[Step] = field(default_factory=list)
    only: tuple[str, ...] = ("",)

    @property
    def here(self) -> Path:
        """Return the folder in which all runs take place."""
        return self.root / "here"

    def walk(self, stages: tuple[tuple[str, ...], ...]) -> None:
        """Run stages, each of which must succeed, and keep the folder after each."""
        for stage in stages:
            before = self.root / f"after-{len(self.steps)}"
            if not self.steps:
                shutil.copytree(self.here, before)
            end = self.nursery.run(self.here, self.arguments(stage))
            assert end.code == 0, (stage, end.output)
            assert end.orphans == [], stage
            after = self.root / f"after-{len(self.steps) + 1}"
            shutil.copytree(self.here, after)
            self.steps.append(Step(stage, before, after, end.calls, end.seconds))

    def shares(self, budget: int, each: int, chance: random.Random) -> Iterator[tuple[Step, int]]:
        """Distribute cases over the steps, at least `each` per selected step; slow steps get fewer.

        If the budget does not suffice for all steps, a random sample of them is selected.
        """
        steps = [step for step in self.steps if step.title.startswith(self.only)]
        if budget < each * len(steps):
            steps = chance.sample(steps, max(1, budget // each))
        weights = [1 / (0.1 + step.seconds) for step in steps]
        left = max(0, budget - each * len(steps))
        for step, weight in zip(steps, weights, strict=True):
            yield step, each + round(left * weight / sum(weights))

    def lay(self, tree: Path) -> None:
        """Restore the folder to the state of a step."""
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(tree, self.here)

    def run(self, step: Step, fault: object = None) -> RunResult:
        """Run a stage in the folder, disturbed or not; no process may outlive it."""
        end = self.nursery.run(self.here, self.arguments(step.stage), fault)  # type: ignore[arg-type]
        assert end.orphans == [], (step.title, fault, end.orphans)
        return end

    def finish(self, step: Step) -> None:
        """Run a stage undisturbed; compare its result with the undisturbed run."""
        end = self.run(step)
        assert end.code == 0, (step.title, end.output)
        results, expected = comparable(self.here), comparable(step.after)
        other = [name for name in sorted({*results, *expected}) if results.get(name) != expected.get(name)]
        assert other == [], (step.title, other)

    def arguments(self, stage: tuple[str, ...]) -> list[str]:
        """Return the command line of a stage."""
        return one_thread(stage)


def finals(folder: Path) -> dict[str, bytes]:
    """Return every final file; of manifests everything except `runtime`, which holds timings, and its digest.

    The cache of parses is left out: its bytes depend on the order of the entries.
    """
    results = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.parent.name != WORK and p.name != CACHE.name):
        body = path.read_bytes()
        if path.name == MANIFEST:
            facts = {k: v for k, v in json.loads(body).items() if k not in ("provenance", "digest")}
            body = json.dumps(facts, sort_keys=True).encode()
        results[path.relative_to(folder).as_posix()] = body
    return results


def comparable(folder: Path) -> dict[str, Any]:
    """Return every final file without times.

    Checkpoints are compared by their tensors. Logs, which contain the seconds of steps, are excluded.
    """
    results: dict[str, Any] = {}
    for name, body in finals(folder).items():
        path, training = folder / name, "runs" in Path(name).parts
        if training and (path.suffix == ".jsonl" or ".tfevents." in name):
            continue
        if training and path.suffix == ".pt":
            results[name] = plain(load_checkpoint(path) | {"log": None})  # bytes of the log
        elif training and path.suffix == ".json":
            results[name] = plain(json.loads(body))
        else:
            results[name] = body
    return results


def plain(value: Any) -> Any:
    """Convert tensors to bytes, and remove values called `seconds`."""
    if isinstance(value, dict):
        return {str(key): plain(v) for key, v in value.items() if key != "seconds"}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return (str(value.dtype), value.numpy().tobytes()) if hasattr(value, "numpy") else value


def lay_inputs(corpus: Corpus, folder: Path) -> dict[str, list[int]]:
    """Write captions of COCO, parameters, a tiny encoder and sentence pairs; return the numbers of the ids of val.

    The val images are ones that people compared with each other, so that few images have many judged pairs.
    """
    from tests.relabel.sources.sbert.tiny_encoder import texts, tiny_encoder

    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
    images = {"train": list(corpus.images(["train"]))[:12], "test": list(corpus.images(["test"]))[:8]}
    images["val"] = [corpus.image_of[f"coco:{number}"] for number in _compared(30)]
    (folder / "experiments.yaml").write_text(EXPERIMENTS, encoding="utf-8")
    lines, numbers = [], {"caption": [], "image": []}  # type: tuple[list[str], dict[str, list[int]]]
    for split in ("train", "val", "test"):
        for image in images[split]:
            for row in range(int(corpus.indptr[image]), int(corpus.indptr[image]) + 5):
                ids = [str(x).removeprefix("coco:") for x in (corpus.caption_ids[row], corpus.image_ids[image])]
                line = {"caption_id": ids[0], "image_id": ids[1], "split": split, "text": corpus.texts[row]}
                lines.append(json.dumps(line) + "\n")
                if split == "val":
                    numbers["caption"].append(int(ids[0]))
            if split == "val":
                numbers["image"].append(int(ids[1]))
    (folder / "more.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "captions.jsonl").write_text("".join(lines[:-15]), encoding="utf-8")
    shutil.copytree(tiny_encoder(folder.parent / "encoder", layers=2), folder / "models" / "tiny")
    for split, count in (("train", 24), ("dev", 12), ("test", 12)):
        first, second, chance = texts(count, 1), texts(count, 2), random.Random(count)
        rows = [f"{a},{b},{chance.randint(0, 50) / 10}\n" for a, b in zip(first, second, strict=True)]
        (folder / f"stsb-{split}.csv").write_text("".join(rows), encoding="utf-8")
    return numbers


def _compared(count: int) -> list[int]:
    """Select images of val, each compared with an earlier one."""
    from relabel.datasets import cxc

    near: dict[int, list[int]] = defaultdict(list)
    table = cxc._read("sis", "val")
    for left, right in zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True):
        near[left].append(right)
        near[right].append(left)

    def reach() -> Iterator[int]:
        reached: set[int] = set()
        for start in sorted(near, key=lambda image: (-len(near[image]), image)):
            todo = [start]
            while todo:
                image = todo.pop(0)
                if image not in reached:
                    reached.add(image)
                    todo += near[image]
                    yield image

    images = reach()
    return sorted(next(images) for _ in range(count))
