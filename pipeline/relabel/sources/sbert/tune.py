"""`relabel tune sbert`: a sentence encoder fine-tuned on what people said of captions, as a model that sbert takes.

It learns from Crisscrossed Captions' val split: caption and caption (STS), and caption and image (SITS) by the largest
cosine to the image's references. The scores of the test split, by which labels are judged, are never read; val and
test share no image.

With folds it also trains a model an image fold without that fold, and writes what each says of the pairs it has not
learned from: what a `fuse` must be fitted on.

Pearson's r with people, all-MiniLM-L6-v2 as the base, every parameter at its default but three folds. Out of fold: what
models that learned from two thirds of val say of the rest. Parameters were chosen on val alone, from few tries.

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
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import Device, Runtime
from relabel.corpus import Corpus
from relabel.datasets.cxc import sha256
from relabel.sources.models.files import DEFAULT_MODEL, ModelFiles, find_model
from relabel.sources.sbert.tune_data import Judged, read_judged
from relabel.sources.sbert.tune_evaluate import cosine_table, encode, figures, in_order
from relabel.store.artefact import Guard, build
from relabel.store.manifest import ArtefactSpec, Manifest
from relabel.store.place import check_kind
from relabel.store.workdir import Work

KIND = "sentence_encoder"
FOLDS = "folds.json"
OUT_OF_FOLD = "out_of_fold.parquet"
TRAINING = "training.json"
_CHECKPOINT = "checkpoint.safetensors"


class TuneSbertParams(Parameters):
    """Parameters of fine-tuning a sentence encoder."""

    on: Literal["cxc-val"] = Field("cxc-val", description="Whose judgements: Crisscrossed Captions' val split.")
    base: str = Field(DEFAULT_MODEL, description="The model to start from: a folder, or a name on the hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for what is here.")
    folds: int = Field(0, ge=0, le=1000, description="Models trained without a fold of images each; 0 for none.")
    layers: int = Field(3, ge=0, le=1000, description="How many layers learn, counted from the last; 0 for all.")
    epochs: int = Field(3, ge=1, le=10_000, description="Passes over the captions.")
    batch_images: int = Field(64, ge=2, le=100_000, description="Images a batch, all their captions with them.")
    rate: float = Field(1e-4, gt=0, le=1000, description="Learning rate of the last layer, at its highest.")
    layer_decay: float = Field(0.9, gt=0, le=1, description="Factor of the rate from a layer to the one below.")
    weight_decay: float = Field(0.01, ge=0, le=1000, description="AdamW's.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps in which the rate rises; then it falls.")
    average: float = Field(0.4, ge=0, le=1, description="Share of the steps, the last, whose weights are averaged.")
    distance: float = Field(
        1.0, gt=0, le=1, description="How far from the base to the trained weights the result lies (WiSE-FT)."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of a layer's output that is dropped in training.")
    embeddings: bool = Field(False, description="Whether word embeddings learn, too.")
    ranking: float = Field(0.0, ge=0, le=1e6, description="Weight of CoSENT's ranking loss.")
    scale: float = Field(20.0, gt=0, le=1e6, description="CoSENT's factor of a difference of cosines.")
    sits: float = Field(
        0.7, ge=0, le=1e6, description="Weight of pairs of caption and image; those of captions have 1."
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="What products are computed in while training; auto: bfloat16 where it is fast."
    )
    seed: Seed = Field(1, description="Seed of batches, folds and dropout.")


def tune_sbert(
    params: TuneSbertParams, corpus: Corpus, out: Path, runtime: Runtime, guard: Guard | None = None
) -> tuple[Manifest, bool]:
    """Fine-tune a sentence encoder on CxC's val split, unless that is done already.

    Parameters
    ----------
    params : TuneSbertParams
    corpus : Corpus
        All of COCO, or at least its val images.
    out : Path
        Folder of the artefact (kind `sentence_encoder`): the model; with folds `fold-0`, ..., `folds.json`,
        `out_of_fold.parquet`.
    runtime : Runtime
    guard : Guard, optional
        Keeps an older model that would be replaced.

    Returns
    -------
    manifest : Manifest
    built : bool
        False if it was there.

    Raises
    ------
    UsageError
        If one fold is asked for.
    MissingError, CheckError
        If the base is nowhere or no model, the corpus lacks judged captions, or the folder holds something else.
    """
    check_kind(out, KIND)
    if params.folds == 1:
        raise UsageError("one fold holds out everything", where="folds", todo="Ask for 0, or for 2 or more.")
    base = find_model(params.base, params.revision, runtime.progress)
    judged = read_judged(corpus)
    run = _Tuning(params, base, judged, runtime)
    artefact = ArtefactSpec(
        KIND,
        f"{base.name} on cxc-val",
        params.model_dump(mode="json", exclude={"base", "revision"}),
        {
            "base": base.sha256(),
            "captions": judged.digest,
            "cxc sts val": sha256("sts", "val"),
            "cxc sits val": sha256("sits", "val"),
        },
    )
    return build(out, artefact, run.fill, runtime.progress, guard)


def training_type(asked: str, device: Device) -> Literal["float32", "bfloat16"]:
    """Choose what training computes in: bfloat16 where the machine multiplies it in hardware, unless told."""
    if asked != "auto":
        return "float32" if asked == "float32" else "bfloat16"
    import torch

    from relabel.core.runtime import pick_device

    if pick_device(device) == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    known = (
        getattr(torch.cpu, name, lambda: False) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )
    return "bfloat16" if any(has() for has in known) else "float32"


@dataclass
class _Tuning:
    params: TuneSbertParams
    base: ModelFiles
    judged: Judged
    runtime: Runtime
    hidden: Any = None  # what layers that do not learn make of the captions: the same for every fold

    def fill(self, work: Work) -> None:
        """Train the model, then those of the folds; write what they say."""
        from relabel.sources.sbert.tune_groups import cut_folds

        p, images = self.params, np.arange(len(self.judged.image_ids))
        self._train(work, "", images, "tune sbert")
        one = np.zeros(len(images), np.int32)
        work.facts["trained_on"] = {
            "dataset": "Crisscrossed Captions val",
            "images": len(images),
            "captions": len(self.judged.texts),
            "sts_pairs": len(self.judged.sts),
            "sits_pairs": len(self.judged.sits),
        }
        work.facts["base"] = self.base.name
        work.facts["loss"] = self._losses(work, "")
        base = figures(self._cosines(self.base.folder, one, [0], "base"))
        work.facts["val"] = {"base": base, "seen": figures(self._cosines(work.folder, one, [0], "tuned model"))}
        if p.folds:
            fold = cut_folds(self.judged, p.folds, p.seed)
            for k in range(p.folds):
                self._train(work, f"fold-{k}/", np.flatnonzero(fold != k), f"tune sbert, fold {k + 1} of {p.folds}")
            ids = dict(zip(self.judged.image_ids, fold.tolist(), strict=True))
            text = json.dumps({"folds": p.folds, "seed": p.seed, "images": ids}, indent=0)
            work.file(FOLDS, lambda path: path.write_text(text, encoding="utf-8"))
            work.table(OUT_OF_FOLD, lambda: self._out_of_fold(work.folder, fold))
            self._note_folds(work, fold)
        work.runtime |= {"model": self.base.record(), "threads": self.runtime.threads, "device": self.runtime.device}

    def _train(self, work: Work, prefix: str, images: NDArray[np.int64], title: str) -> None:
        """Train on the pairs among some images, and write the model below the prefix, unless it is there."""
        if work.done(prefix + TRAINING):
            return
        import torch

        from relabel.sources.sbert.tune_backward import Gradients
        from relabel.sources.sbert.tune_batches import Batches
        from relabel.sources.sbert.tune_train import Trainer

        p = self.params
        dtype = training_type(p.dtype, self.runtime.device)
        model = Gradients(
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
        checkpoint = work.folder / f"{prefix.strip('/') or 'model'}.{dtype}.{_CHECKPOINT}"
        try:
            trainer = Trainer(model, Batches(self.judged, images, p.batch_images, p.seed), p, checkpoint)
            trainer.run(self.runtime.progress, title)
        finally:
            model.close()
        self._save(work, prefix, model.model)
        said = {"dtype": dtype, "losses": trainer.losses, "images": len(images), "steps": trainer.steps}
        text = json.dumps(said)
        work.file(prefix + TRAINING, lambda path: path.write_text(text, encoding="utf-8"))
        checkpoint.unlink(missing_ok=True)

    def _save(self, work: Work, prefix: str, model: Any) -> None:
        """Have sentence-transformers write its files, and take them over one by one."""
        from relabel.sources.models.loading import quiet

        with tempfile.TemporaryDirectory(dir=work.folder) as folder:
            with quiet():
                model.save(folder, create_model_card=False)
            for file in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
                name = prefix + file.relative_to(folder).as_posix()
                work.file(name, lambda path, file=file: shutil.copyfile(file, path))  # type: ignore[misc]

    def _losses(self, work: Work, prefix: str) -> list[float]:
        found: list[float] = json.loads((work.folder / (prefix + TRAINING)).read_text(encoding="utf-8"))["losses"]
        return [round(x, 5) for x in found]

    def _cosines(self, folder: Path, fold: NDArray[np.int32], folds: list[int], what: str) -> pa.Table:
        captions = np.flatnonzero(np.isin(fold[self.judged.image], folds))
        with self.runtime.progress.bar(f"cosines of val pairs, {what}", len(captions), "captions") as bar:
            vectors = encode(folder, self.judged, captions, self.runtime, bar)
        return cosine_table(self.judged, vectors, fold, folds)

    def _out_of_fold(self, folder: Path, fold: NDArray[np.int32]) -> pa.Table:
        """Score each fold's pairs by the model that has not learned from them, in the order of the human scores."""
        tables = [self._cosines(folder / f"fold-{k}", fold, [k], f"fold {k + 1}") for k in range(self.params.folds)]
        return in_order(pa.concat_tables(tables).unify_dictionaries())

    def _note_folds(self, work: Work, fold: NDArray[np.int32]) -> None:
        table = pq.read_table(work.folder / OUT_OF_FOLD)
        sides = {"sts": self.judged.sts.images, "sits": self.judged.sits.images}
        work.facts["folds"] = {
            "count": self.params.folds,
            "images": np.bincount(fold).tolist(),
            "crossing_pairs": {task: int((fold[a[:, 0]] != fold[a[:, 1]]).sum()) for task, a in sides.items()},
        }
        work.facts["val"]["out_of_fold"] = figures(table)
