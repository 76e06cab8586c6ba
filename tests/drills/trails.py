"""Every stage in an order that satisfies its inputs, on 250 of COCO's captions, and the folder after each."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from tests.drills.nursery import Fault, Run, RunResult
from tests.golden.today import coco_captions
from tests.relabel.sources.sbert.tiny_encoder import WORDS, texts, tiny_encoder
from tests.relabel_cli.runner import one_thread

from relabel.datasets.cxc import human_scores
from relabel.sources.spice.parse_cache import FILE as CACHE
from relabel.store.artefact import WORK
from relabel.store.manifest import MANIFEST
from relabel_train.reference.runs import load_checkpoint

PARAMS = """
ingest:
  {dataset: drill, namespace: coco, format: jsonl, path: captions.jsonl}
tune:
  word2vec: {tokenizer: lower_split, width: 8, min_count: 1, epochs: 1}
  bert_sts: {base: models/tiny, epochs: 1}
  sbert: {base: models/tiny, folds: 2, epochs: 1}
  fuse: {parts: [tuned, sbert, word2vec, cider]}
neighbours: {k: 10}
judge: {split: val, resamples: 5}
export: {labels: [cider]}
sources:
  same_image: {source: same_image}
  cider: {source: cider, tokenizer: lower_split}
  cider_ptb: {source: cider, tokenizer: ptb}
  word2vec: {source: cbow, tokenizer: lower_split, vectors: word2vec}
  sbert: {source: sbert, model: models/tiny}
  tuned: {source: sbert, model: data/tuned}
  wmd: {source: wmd, tokenizer: lower_split, vectors: word2vec}
  spice: {source: spice}
  meteor: {source: meteor}
  bert_sts: {source: bert_sts, gate: word2vec, threshold: 0.9}
  fuse: {source: fuse, gate: cider}
"""
EXPERIMENTS = """
proxy_features: {train: 8, val: 6, test: 4, vectors: 3, encoder: transformer, model: models/tiny}
fit_table:
  {train_labels: [sbert], judges: [sbert, cider], rows: {one: {loss: {name: bcls}}}, models: {vsepp: {embed_dim: 8}},
   lrs: [0.001, 0.002], extend: 0, search_seeds: [0], seeds: [1], epochs: 1, batch_size: 8, neighbours: 10, graded: 4}
"""
FIT = (
    "fit --features labels/drill/proxy --captions labels/drill_proxy/corpus"
    " --lookup labels/drill_proxy/exports/all/lookup/sbert --loss bcls --out runs/fit --epochs 3 --batch-size 8"
    " --set model.embed_dim=8 --set model.word_dim=8 --set evaluate_every=2 --set log_every=1 --set min_count=1"
)
INDEX = "--set neighbours.index=IVF4,Flat"
MORE = "ingest --path more.jsonl"
ENCODED = ("same_image", "cider", "cider_ptb", "word2vec", "sbert", "wmd", "spice", "meteor")
# The last five bring encodings and neighbours up to date after captions were added.
STAGES = (
    "fetch eccv",
    "ingest",
    "tune word2vec",
    *(f"encode --label {label} --split all" for label in ENCODED),
    "tune bert_sts",
    "encode --label bert_sts --split all",
    "tune sbert --out data/tuned",
    "tune fuse",
    *(f"encode --label {label} --split all" for label in ("tuned", "fuse")),
    *(f"neighbours --label {label}" for label in ("sbert", "cider", "spice", "wmd", "bert_sts", "fuse")),
    "neighbours --label cider --queries images",
    f"neighbours --label word2vec {INDEX}",
    *(f"export lookup --label {label} --split all" for label in ("cider", "spice", "fuse")),
    f"export lookup --label word2vec --split all {INDEX}",
    f"export wds --label word2vec --split all --captions-per-shard 90 {INDEX}",
    "export batches --label cider --split train --batch-size 8 --sampler neighbour",
    "export batches --label meteor --split train --batch-size 16 --name pairs",
    "encode --label same_image --split val",  # `tune fuse` has made that of cider
    "correlate --cxc --split val --label cider,same_image",
    "experiments.proxy_features --experiments experiments.yaml",
    "experiments.fit_table --experiments experiments.yaml",
    FIT,
    MORE,
    *(f"encode --label {label} --split all --set ingest.path=more.jsonl" for label in ("sbert", "spice")),
    *(f"neighbours --label {label} --set ingest.path=more.jsonl" for label in ("sbert", "spice")),
)
EACH = 2  # runs that are disturbed per stage, at least
IN_A_ROW = 6  # runs that are disturbed before a stage is let finish, at most


@dataclass(frozen=True)
class Step:
    """A stage that ran undisturbed.

    `before`, `after`: the folder before and after it, which tests must not change.
    `calls`: number of calls that changed the disk.
    """

    stage: str
    before: Path
    after: Path
    calls: int
    seconds: float

    @property
    def title(self) -> str:
        """Name of the stage: its words and labels, without numbers."""
        words = [w for w in self.stage.split() if not (w.startswith("-") or w.isdigit() or set(w) & set("/=."))]
        return " ".join(words[:1] if self.stage == FIT else [w for w in words if w not in ("all", "train", "val")])


@dataclass
class Trail:
    """All stages, undisturbed.

    `run_stage`: runs one in a forked process.
    `root`: folder of what `steps` kept; runs take place in `root/here`, disturbed or not.
    `only`: beginnings of the titles of the steps that are disturbed.
    """

    run_stage: Run
    root: Path
    only: tuple[str, ...]
    steps: list[Step] = field(default_factory=list)

    @property
    def here(self) -> Path:
        """Return the folder in which all runs take place."""
        return self.root / "here"

    def walk(self) -> None:
        """Run every stage, which must succeed, and keep the folder after each."""
        after = shutil.copytree(self.here, self.root / "inputs")
        for number, stage in enumerate(STAGES):
            before, end = after, self.run(stage)
            assert end.code == 0, (stage, end.output)
            after = shutil.copytree(self.here, self.root / f"after-{number}")
            self.steps.append(Step(stage, before, after, end.calls, end.seconds))

    def run(self, stage: str, fault: Fault | None = None) -> RunResult:
        """Run a stage in the folder, disturbed or not; no process may outlive it."""
        end = self.run_stage(self.here, one_thread(stage.split()), fault)
        assert end.orphans == [], (stage, fault, end.orphans)
        return end

    def lay(self, tree: Path) -> None:
        """Restore the folder to the state of a step."""
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(tree, self.here)

    def disturb(
        self,
        budget: int,
        seed: int,
        draw: Callable[[Step, random.Random], Fault],
        check: Callable[[Fault, RunResult], None],
    ) -> list[tuple[str, list[Fault], str]]:
        """Disturb stages a few times in a row, then let each finish with the files of its undisturbed run.

        `budget`: number of disturbed runs.
        `draw`: draws a fault. `check`: checks how a disturbed run ended.

        Returns title, faults in a row and message of what went wrong.
        """
        chance, wrong = random.Random(seed), []
        for step, left in self._shares(budget, chance):
            while left > 0:
                self.lay(step.before)
                drawn: list[Fault] = []
                try:
                    for _ in range(min(left, IN_A_ROW)):
                        drawn.append(draw(step, chance))
                        left -= 1
                        end = self.run(step.stage, drawn[-1])
                        check(drawn[-1], end)
                        if end.code == 0:
                            break
                    self._finish(step)
                except AssertionError as error:
                    wrong.append((step.title, drawn, str(error)[-2000:]))
                    print(wrong[-1])
                    break
            print(f"{step.title}: {len(wrong)} faults so far")
        return wrong

    def _shares(self, budget: int, chance: random.Random) -> Iterator[tuple[Step, int]]:
        """Distribute runs over the steps; slow ones get fewer. A small budget is spent on a sample of the steps."""
        steps = [step for step in self.steps if step.title.startswith(self.only)]
        if budget < EACH * len(steps):
            steps = chance.sample(steps, max(1, budget // EACH))
        weights = [1 / (0.1 + step.seconds) for step in steps]
        left = max(0, budget - EACH * len(steps))
        for step, weight in zip(steps, weights, strict=True):
            yield step, EACH + round(left * weight / sum(weights))

    def _finish(self, step: Step) -> None:
        end = self.run(step.stage)
        assert end.code == 0, end.output
        results, expected = comparable(self.here), comparable(step.after)
        assert [name for name in sorted({*results, *expected}) if results.get(name) != expected.get(name)] == []


def comparable(folder: Path) -> dict[str, Any]:
    """Return every final file without times: checkpoints by their tensors, manifests without their provenance.

    Left out: logs of trainings, which hold seconds, and the cache of parses, whose bytes follow the order of entries.
    """
    results: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = path.relative_to(folder)
        training = "runs" in place.parts
        if path.parent.name == WORK or path.name == CACHE.name:
            continue
        if path.name == MANIFEST:
            facts = json.loads(path.read_bytes())
            results[str(place)] = {k: v for k, v in facts.items() if k not in ("provenance", "digest")}
        elif training and path.suffix == ".pt":
            results[str(place)] = plain(load_checkpoint(path))
        elif not (training and path.suffix == ".jsonl"):
            results[str(place)] = path.read_bytes()
    return results


def plain(value: Any) -> Any:
    """Convert tensors to bytes, and remove values called `seconds`."""
    if isinstance(value, dict):
        return {str(key): plain(v) for key, v in value.items() if key != "seconds"}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return (str(value.dtype), value.numpy().tobytes()) if hasattr(value, "numpy") else value


def lay_inputs(folder: Path) -> None:
    """Write captions of COCO, parameters, a tiny encoder and sentence pairs.

    The images of val are one image and those that people compared with it, so that few images have many judged pairs.
    """
    folder.mkdir()
    (folder / "params.yaml").write_text(PARAMS, encoding="utf-8")
    (folder / "experiments.yaml").write_text(EXPERIMENTS, encoding="utf-8")
    human = human_scores("sis", "val")
    pairs = list(zip(human.left, human.right, strict=True))
    ((hub, _),) = Counter(chain.from_iterable(pairs)).most_common(1)
    compared = list(dict.fromkeys(chain.from_iterable(pair for pair in pairs if hub in pair)))[:30]
    images: dict[str, list[str]] = defaultdict(list)
    for one in coco_captions({"train": 12, "val": 5000, "test": 8}):
        if one["split"] != "val" or f"coco:{one['image_id']}" in compared:
            # A caption of which the tiny encoder knows no word would be a failed row.
            known = {*one["text"].lower().split()} & {*WORDS}
            text = one["text"] if known else f"a {one['text']}"
            images[one["image_id"]].append(json.dumps(one | {"text": text}) + "\n")
    lines = [line for captions in images.values() for line in captions[:5]]
    (folder / "more.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "captions.jsonl").write_text("".join(lines[:-15]), encoding="utf-8")
    shutil.copytree(tiny_encoder(folder.parent / "encoder", layers=2), folder / "models" / "tiny")
    for split, count in (("train", 24), ("dev", 12), ("test", 12)):
        first, second, chance = texts(count, 1), texts(count, 2), random.Random(count)
        rows = [f"{a},{b},{chance.randint(0, 50) / 10}\n" for a, b in zip(first, second, strict=True)]
        (folder / f"stsb-{split}.csv").write_text("".join(rows), encoding="utf-8")
