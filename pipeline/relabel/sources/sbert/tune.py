"""`relabel tune sbert`: fine-tuning of a sentence encoder on human similarity scores, as a model for `sbert`.

The training data are the judged pairs of Crisscrossed Captions' val split. Pairs of captions (STS) are compared by
their cosine, and pairs of a caption and an image (SITS) by the largest cosine to the image's references. The scores of
the test split, which evaluate labels, are never read. Val and test share no image.

With folds, one model per fold is trained without the images of that fold. The scores of each model for its held-out
pairs are written to a table, on which a `fuse` can be fitted without bias. The model itself is trained on all images,
or is the average of the folds' models (`merge`; Wortsman et al., "Model soups", ICML 2022).

Pearson's r with human scores, with all-MiniLM-L6-v2 as the base, three folds, and defaults otherwise. "Out of fold" are
the scores of models trained on two thirds of val for the remaining third. Parameters were chosen on val, in few trials.

|                            | STS   | SITS all | SITS of other images |
|----------------------------|-------|----------|----------------------|
| val, the base              | 0.771 | 0.829    | 0.662                |
| val, out of fold           | 0.778 | 0.840    | 0.690                |
| test, the base             | 0.777 | 0.881    | 0.761                |
| test, tuned                | 0.803 | 0.899    | 0.801                |
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import Runtime, pick_device
from relabel.corpus import Corpus
from relabel.datasets.cxc import sha256
from relabel.sources.models.files import DEFAULT_MODEL, ModelFiles, find_model
from relabel.sources.sbert.tune_data import (
    JudgedSet,
    SentenceSetName,
    correlations,
    cosine_table,
    encode,
    read_judged_set,
    read_sentence_sets,
    sort_pairs,
)
from relabel.store.artefact import Inputs, Recipe
from relabel.store.workdir import Work

KIND = "sentence_encoder"
FOLDS = "folds.json"
OUT_OF_FOLD = "out_of_fold.parquet"
TRAINING = "training.json"
_CHECKPOINT = "checkpoint.safetensors"


class TuneSbertParams(Parameters):
    """Parameters of fine-tuning a sentence encoder."""

    on: Literal["cxc-val"] = Field(
        "cxc-val", description="Human scores to learn from: Crisscrossed Captions' val split."
    )
    base: str = Field(DEFAULT_MODEL, description="The model to start from: a folder, or a name on the hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for the local copy.")
    folds: int = Field(0, ge=0, le=1000, description="Number of folds, with a model trained without each; 0 for none.")
    merge: bool = Field(
        False, description="With folds: average the weights of their models in place of a training on all images."
    )
    layers: int = Field(3, ge=0, le=1000, description="Number of layers that learn, counted from the last; 0 for all.")
    epochs: int = Field(3, ge=1, le=10_000, description="Passes over the captions.")
    batch_images: int = Field(64, ge=2, le=100_000, description="Images per batch, with all their captions.")
    rate: float = Field(1e-4, gt=0, le=1000, description="Largest learning rate of the last layer.")
    layer_decay: float = Field(0.9, gt=0, le=1, description="Factor of the rate from a layer to the one below.")
    weight_decay: float = Field(0.01, ge=0, le=1000, description="Weight decay of AdamW.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps in which the rate rises; then it falls.")
    average: float = Field(0.4, ge=0, le=1, description="Share of the last steps whose weights are averaged.")
    distance: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Position of the result between the base (0) and the trained weights (1), as in WiSE-FT.",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of a layer's output that is dropped in training.")
    embeddings: bool = Field(False, description="Whether word embeddings learn.")
    ranking: float = Field(0.0, ge=0, le=1e6, description="Weight of CoSENT's ranking loss.")
    scale: float = Field(20.0, gt=0, le=1e6, description="CoSENT's factor of a difference of cosines.")
    sits: float = Field(
        0.7, ge=0, le=1e6, description="Weight of pairs of caption and image; those of captions have 1."
    )
    sis: float = Field(0.0, ge=0, le=1e6, description="Weight of pairs of images.")
    also: tuple[SentenceSetName, ...] = Field(
        (), description="Sentence pairs to learn from as well: the train splits of stsb and sick."
    )
    also_weight: float = Field(0.3, ge=0, le=1e6, description="Weight of each set of sentence pairs.")
    also_share: float = Field(0.34, gt=0, le=1, description="Share of each set of sentence pairs in an epoch.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Type of products in training; auto: bfloat16 where it is fast."
    )
    seed: Seed = Field(1, description="Seed of batches, folds and dropout.")


def tune_sbert(params: TuneSbertParams, corpus: Corpus, runtime: Runtime) -> Recipe:
    """Return the recipe of a sentence encoder that is fine-tuned on CxC's val split.

    Its files are the model and, with folds, `fold-0`, ..., `folds.json` and `out_of_fold.parquet`.

    `corpus`: all of COCO, or at least its val images.
    """
    if params.folds == 1:
        raise UsageError("one fold holds out everything", where="folds", todo="Use 0, or 2 or more.")
    if params.merge and not params.folds:
        raise UsageError("without folds there is nothing to merge", where="merge", todo="Add --folds 3.")
    base = cache(lambda: find_model(params.base, params.revision, runtime.progress))
    sentences = cache(lambda: {one.name: one for one in read_sentence_sets(params.also, runtime)})
    judged = cache(lambda: read_judged_set(corpus, list(sentences().values())))
    inputs: Inputs = {"base": lambda: base().sha256(), "captions": lambda: judged().digest}
    inputs |= {f"cxc {t} val": partial(sha256, t, "val") for t in ("sts", "sits", *(("sis",) if params.sis else ()))}
    inputs |= {f"{name} train": lambda name=name: sentences()[name].sha256 for name in params.also}  # type: ignore[misc]
    return Recipe(
        KIND,
        f"{Path(params.base).name} on cxc-val",
        partial(params.model_dump, mode="json", exclude={"base", "revision"}),
        inputs,
        lambda work: _Tuner(params, base(), judged(), runtime).fill(work),
    )


@dataclass
class _Tuner:
    """Training of the model and of the models of the folds.

    `hidden`: output of the frozen layers for each caption, computed once and shared by all folds.
    """

    params: TuneSbertParams
    base: ModelFiles
    judged: JudgedSet
    runtime: Runtime
    hidden: Any = None

    def fill(self, work: Work) -> None:
        """Train the model and those of the folds, and write their files and scores."""
        from relabel.sources.sbert.tune_batches import cut_folds

        p, images = self.params, np.arange(len(self.judged.image_ids))
        single_fold = np.zeros(len(images), np.int32)
        fold = cut_folds(self.judged, p.folds, p.seed) if p.folds else single_fold
        if not p.merge:
            self._train(work, "", images, "tune sbert")
        for k in range(p.folds):
            self._train(work, f"fold-{k}/", np.flatnonzero(fold != k), f"tune sbert, fold {k + 1} of {p.folds}")
        if p.merge:
            self._merge(work)
        work.facts["trained_on"] = {
            "dataset": "Crisscrossed Captions val",
            "images": len(images),
            "captions": len(self.judged.image),
            "sts_pairs": len(self.judged.sts),
            "sits_pairs": len(self.judged.sits),
            "sis_pairs": len(self.judged.sis) if self.params.sis else 0,
            "sentence_pairs": {
                name: len(pairs.score) for name, pairs in zip(self.params.also, self.judged.sentences, strict=True)
            },
        }
        work.facts["base"] = self.base.name
        work.facts["loss"] = self._losses(work, "fold-0/" if p.merge else "")
        work.facts["val"] = {"base": correlations(self._cosines(self.base.folder, single_fold, [0], "base"))}
        if not p.folds:
            # Held-out figures replace these, which are too high.
            seen = self._cosines(work.folder, single_fold, [0], "tuned model")
            work.facts["val"]["seen"] = correlations(seen)
        else:
            ids = dict(zip(self.judged.image_ids, fold.tolist(), strict=True))
            text = json.dumps({"folds": p.folds, "seed": p.seed, "images": ids}, indent=0)
            work.file(FOLDS, lambda path: path.write_text(text, encoding="utf-8"))
            work.table(OUT_OF_FOLD, lambda: self._out_of_fold(work.folder, fold))
            self._record_folds(work, fold)
        work.runtime |= {"model": self.base.record(), "threads": self.runtime.threads, "device": self.runtime.device}

    def _train(self, work: Work, prefix: str, images: NDArray[np.int64], title: str) -> None:
        """Train on the pairs among some images and write the model below the prefix, unless it exists."""
        # The summary is written after the model's files: a model without it is trained again.
        if work.done(prefix + TRAINING):
            return
        import torch

        from relabel.sources.models.loading import training_type
        from relabel.sources.sbert.tune_backward import GradientModel
        from relabel.sources.sbert.tune_batches import Batches
        from relabel.sources.sbert.tune_train import Trainer

        p = self.params
        dtype = training_type(p.dtype, pick_device(self.runtime.device))
        model = GradientModel(
            self.base.folder,
            self.judged.texts,
            self.runtime,
            getattr(torch, dtype),
            p.dropout,
            p.embeddings,
            p.layers,
            self.hidden,
        )
        self.hidden = model.hidden
        checkpoint = work.folder / f".{prefix.strip('/') or 'model'}.{dtype}.{_CHECKPOINT}"
        try:
            trainer = Trainer(model, Batches(self.judged, images, p.batch_images, p.seed, p.also_share), p, checkpoint)
            trainer.run(self.runtime.progress, title)
        finally:
            model.close()
        self._save(work, prefix, model.model)
        summary = {"dtype": dtype, "losses": trainer.losses, "images": len(images), "steps": trainer.steps}
        text = json.dumps(summary)
        work.file(prefix + TRAINING, lambda path: path.write_text(text, encoding="utf-8"))
        # From here on the model's own files replace the checkpoint.
        checkpoint.unlink(missing_ok=True)

    def _merge(self, work: Work) -> None:
        """Write the model whose weights are the means of those of the folds' models."""
        import torch

        from relabel.sources.models.loading import load_model

        models = [load_model(work.folder / f"fold-{k}", "cpu", None) for k in range(self.params.folds)]
        with torch.no_grad():
            for weights in zip(*(model.parameters() for model in models), strict=True):
                weights[0].copy_(torch.stack(weights).mean(0))
        self._save(work, "", models[0])

    def _save(self, work: Work, prefix: str, model: Any) -> None:
        """Write the model with sentence-transformers to a temporary folder, and commit its files one by one."""
        from relabel.sources.models.loading import quiet

        with tempfile.TemporaryDirectory(prefix=".", dir=work.folder) as folder:
            with quiet():
                model.save(folder, create_model_card=False)
            for file in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
                name = prefix + file.relative_to(folder).as_posix()
                work.file(name, lambda path, file=file: shutil.copyfile(file, path))  # type: ignore[misc]

    def _losses(self, work: Work, prefix: str) -> list[float]:
        """Read the mean loss of each epoch."""
        losses: list[float] = json.loads((work.folder / (prefix + TRAINING)).read_text(encoding="utf-8"))["losses"]
        return [round(x, 5) for x in losses]

    def _cosines(self, folder: Path, fold: NDArray[np.int32], folds: list[int], title: str) -> pa.Table:
        """Score the pairs of some folds with the model in a folder."""
        captions = np.flatnonzero(np.isin(fold[self.judged.image], folds))
        with self.runtime.progress.bar(f"cosines of val pairs, {title}", len(captions), "captions") as bar:
            vectors = encode(folder, self.judged, captions, self.runtime, bar)
        return cosine_table(self.judged, vectors, fold, folds)

    def _out_of_fold(self, folder: Path, fold: NDArray[np.int32]) -> pa.Table:
        """Score each fold's pairs with the model trained without them, in the order of the human scores."""
        tables = [self._cosines(folder / f"fold-{k}", fold, [k], f"fold {k + 1}") for k in range(self.params.folds)]
        return sort_pairs(pa.concat_tables(tables).unify_dictionaries())

    def _record_folds(self, work: Work, fold: NDArray[np.int32]) -> None:
        """Record the folds and the out-of-fold correlations in the manifest."""
        table = pq.read_table(work.folder / OUT_OF_FOLD)
        sides = {"sts": self.judged.sts.images, "sits": self.judged.sits.images}
        work.facts["folds"] = {
            "count": self.params.folds,
            "images": np.bincount(fold).tolist(),
            "crossing_pairs": {task: int((fold[a[:, 0]] != fold[a[:, 1]]).sum()) for task, a in sides.items()},
        }
        work.facts["val"]["out_of_fold"] = correlations(table)
