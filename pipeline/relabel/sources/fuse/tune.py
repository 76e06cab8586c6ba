"""`relabel tune fuse`: fit a combination of labels to the human scores of CxC's val pairs.

Val and test do not share images (a test checks this). Two heads are fitted with the protocol of `relabel.judge.cxc`:
`set` to SITS, with a caption against an image's first five captions (it may be one of them), and `single` to STS, with
a caption against another one in both directions. With `altered_pairs`, captions of COCO's train2014 and their altered
copies are added to STS.

If a part was itself tuned on val (its model folder has `out_of_fold.parquet`), the fit uses its out-of-fold
predictions, by models that had not seen the images of a pair. Otherwise the fit would overestimate this part, because
its predictions for the pairs in its training data are too good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Scores
from relabel.corpus import Corpus, References
from relabel.datasets import cxc
from relabel.datasets.cxc import HumanScores, Task, human_scores
from relabel.sources.base import Source
from relabel.sources.fuse.altered import alter_captions, read_train_captions
from relabel.sources.fuse.fit import CAP, SEED, Sample, TuneFuseParams, correlate_methods, cross_validate, fit_head
from relabel.sources.fuse.model import KIND, FuseModel, Part, without_rows
from relabel.sources.fuse.relevance import part_scores
from relabel.sources.judged import find_judged
from relabel.sources.relevance import Relevance
from relabel.sources.texts import score_texts
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST, read_manifest
from relabel.store.workdir import Work
from relabel_train.files import sha256_file
from relabel_train.scoring.fuse import Feature, FeaturePooling, Head, HeadName, compute_features

TASKS: dict[Task, HeadName] = {"sits": "set", "sts": "single"}
SPLIT: Literal["val"] = "val"
OUT_OF_FOLD = "out_of_fold.parquet"
"""File with out-of-fold predictions in the folder of a model tuned on val."""
_ALTERED_SCORE = 0.65  # assumed human score of a caption and its altered copy, 0 to 1
_SAME_STEP = 5  # every fifth altered caption is also paired with itself


@dataclass(frozen=True)
class FuseInput:
    """A label to combine.

    `config`: parameters of the label's encoding of val.
    `identity`: identity of this encoding as an input of an artefact.
    `opened`: opens the encoding.
    `tuned`: file of out-of-fold predictions, or None (see `find_out_of_fold`).
    """

    source: Source[Any]
    config: dict[str, Any]
    identity: str | Callable[[], str]
    opened: Callable[[], Relevance]
    tuned: Path | None = None

    def part(self) -> Part:
        """Return the description of the label for the model."""
        return Part(self.source.spec.name, self.source.is_pairwise(), without_rows(self.config))

    def poolings(self, task: Task) -> tuple[FeaturePooling, ...]:
        """Return the poolings of the label's features."""
        # With a single reference, all poolings give the same score. If the source supports `set`, this replaces the
        # mean. For sources that score pair by pair, it is the only feature, because they are slow.
        if task == "sts":
            return ("max",)
        if "set" in self.source.spec.refused_poolings:
            return ("max", "mean")
        return ("set",) if self.source.is_pairwise() else ("set", "max")


def find_out_of_fold(source: Source[Any]) -> Path | None:
    """Find the out-of-fold predictions of a label with a model tuned on val; None for other labels."""
    folder = source.model_folder()
    if folder is None or not (folder / MANIFEST).is_file():
        return None
    manifest = read_manifest(folder)
    if (folder / OUT_OF_FOLD).is_file():
        return folder / OUT_OF_FOLD
    if manifest.kind != KIND and any(name.startswith("cxc") and name.endswith(SPLIT) for name in manifest.inputs):
        message = "this model was tuned on val, but has no out-of-fold predictions"
        raise UsageError(message, where=str(folder), hint="Tune it again with --folds 3.")
    return None


def tune_fuse(params: TuneFuseParams, parts: Mapping[str, FuseInput], corpus: Corpus, runtime: Runtime) -> Recipe:
    """Return the recipe of a fuse model. Its manifest has cross-validated correlations.

    `parts`: labels in `params.parts`. `corpus`: COCO with Karpathy's val split.
    """
    if unknown := [label for label in params.free_parts if label not in params.parts]:
        message = f"{', '.join(unknown)} is not among the parts {', '.join(params.parts)}"
        raise UsageError(message, where="tune.fuse.free_parts", hint="Use only parts of the fuse.")
    described = {label: source.part() for label, source in parts.items()}
    config = params.model_dump(mode="json") | {"made_of": {label: asdict(part) for label, part in described.items()}}
    inputs: Inputs = {"corpus": corpus.digest, **{f"encoding {label}": p.identity for label, p in parts.items()}}
    inputs |= {f"cxc {task} {SPLIT}": partial(cxc.sha256, task, SPLIT) for task in TASKS}
    inputs |= {f"out of fold {label}": partial(sha256_file, p.tuned) for label, p in parts.items() if p.tuned}

    def fill(work: Work) -> None:
        heads: dict[HeadName, Head] = {}
        tasks: dict[Task, dict[str, Any]] = {}
        for task, name in TASKS.items():
            judged = judged_pairs(task, parts, corpus, runtime)
            # Leave out pairs without a score of every part: failed rows, and pairs between out-of-fold folds.
            sample, cap = _complete(judged), CAP
            tasks[task] = {"pairs": len(sample.human), "left_out": len(judged.human) - len(sample.human)}
            if task == "sts":
                # Pairs of one image in STS are two different captions, so no cap is needed.
                cap = 0.0
                if params.altered_pairs:
                    sample = sample.joined(_complete(altered_pairs(params, parts, runtime)))
            tasks[task]["cross_validated"] = correlate_methods(sample, cross_validate(sample, params, cap))
            heads[name] = fit_head(sample, params, cap)
        FuseModel(described, heads).write(work)
        work.metadata |= {"parts": list(parts), "split": SPLIT, "tasks": tasks}

    return Recipe(KIND, f"fuse of {', '.join(parts)}", lambda: config, inputs, fill)


def judged_pairs(task: Task, parts: Mapping[str, FuseInput], corpus: Corpus, runtime: Runtime) -> Sample:
    """Return the judged pairs of a task in val. Features are NaN if a part has no score."""
    human = human_scores(task, SPLIT)
    left, right = find_judged(human, corpus)
    # Reference sets and captions to score, in one direction for SITS and in both for STS.
    if task == "sits":
        directions, right_image = [(corpus.references(right), left)], right
    else:
        directions = [(References.single(left), right), (References.single(right), left)]
        right_image = corpus.image[right]
    images = np.stack([corpus.image[left], right_image], axis=1)
    features, values = [Feature(label, pooling) for label, p in parts.items() for pooling in p.poolings(task)], []
    for label, source in parts.items():
        selected = [feature for feature in features if feature.part == label]
        if source.tuned is not None:
            # The file has one prediction per pair, for both directions.
            scores = _out_of_fold(source.tuned, task, human, selected)
            values.append(np.repeat(scores[:, None], len(directions), axis=1))
            continue
        score, columns = part_scores({label: source.opened()}, block=False), []
        with runtime.progress.bar(f"{label}, {task} {SPLIT}", len(human) * len(directions), "pairs") as bar:
            for references, captions in directions:
                computed = compute_features(score, selected, references, captions, block=False)
                columns.append(np.stack(list(computed), axis=1))
                bar.advance(len(human))
        values.append(np.stack(columns, axis=1))
    return Sample(tuple(features), np.concatenate(values, axis=2), human.score / 5, images, np.array(human.method))


def _out_of_fold(path: Path, task: Task, human: HumanScores, features: Sequence[Feature]) -> Scores:
    """Read out-of-fold predictions as features of a part, (P, F) float64; NaN for pairs between folds."""
    table = pq.read_table(path)
    names = zip(*(table[name].cast(pa.string()).to_pylist() for name in ("task", "left", "right")), strict=True)
    row_of = {pair: row for row, pair in enumerate(names)}
    rows = np.array([row_of.get((task, *pair), -1) for pair in zip(human.left, human.right, strict=True)])
    columns = np.stack([table[feature.pooling].to_numpy() for feature in features], axis=1)
    return np.where(rows[:, None] < 0, np.nan, columns[rows])


def _complete(sample: Sample) -> Sample:
    return sample.take(np.asarray(np.isfinite(sample.values).all(axis=(1, 2))))


def altered_pairs(params: TuneFuseParams, parts: Mapping[str, FuseInput], runtime: Runtime) -> Sample:
    """Return pairs of a caption and its altered copy, to add to STS."""
    copies = alter_captions(read_train_captions(runtime), params.altered_pairs, SEED)
    # Include pairs of equal captions. Otherwise the fit would learn that equal words mean low relevance.
    same = [(caption, caption) for caption, _ in copies[::_SAME_STEP]]
    first, second = zip(*copies, *same, strict=True)
    texts, count = [[text] for text in (*first, *second)], len(first)
    scores = [score_texts(p.source, texts, [*second, *first], runtime).scores for p in parts.values()]
    values = np.stack(scores, axis=1).reshape(2, count, len(parts)).swapaxes(0, 1)
    human = np.repeat([_ALTERED_SCORE, 1.0], [len(copies), len(same)])
    features = tuple(Feature(label, "max") for label in parts)
    return Sample(features, values, human, np.full((count, 2), -1, np.int32), np.full(count, "altered"))
