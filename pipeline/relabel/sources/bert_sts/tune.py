"""`relabel tune bert_sts`: fine-tuning of a cross-encoder on STS-B.

A cross-encoder reads two sentences and returns their similarity. Zhou, Niu, Wang, Gao, Zhang, Hua, "Ladder Loss for
Coherent Visual-Semantic Embedding", AAAI 2020, fine-tune BERT with one regression output on STS-B and report Pearson's
r of 0.88 on its dev split.

Human scores of 0..5 are divided by 5 and learned with binary cross-entropy, so the sigmoid of the output is the
relevance. The training is that of sentence-transformers: seeded, quiet, and resumed from its checkpoints.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from relabel.core.errors import MissingError
from relabel.core.numeric.statistics import pearson, round_relative, spearman
from relabel.core.numeric.threads import inner_threads
from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import ProgressBar, Runtime, pick_device
from relabel.datasets import locate
from relabel.datasets.judged.stsb import FILES, SentencePair, read_stsb
from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel.sources.models.loading import load_from_folder, quiet, training_type
from relabel.store.artefact import Inputs, Recipe
from relabel.store.files import sha256_file
from relabel.store.workdir import Work

KIND = "cross_encoder"
CHECKPOINTS = ".checkpoints"
_STATE = "trainer_state.json"  # the file that the trainer writes last into a checkpoint
_SORTED_BATCHES = 50  # batches whose pairs are sorted by length together
_METRIC = "dev_pearson"
_EVAL_METRIC = f"eval_{_METRIC}"


class TuneBertStsParams(Parameters):
    """Parameters of the cross-encoder's training."""

    on: Literal["stsb"] = Field("stsb", description="Training data: STS-B's train split.")
    base: str = Field(DEFAULT_MODEL, description="Encoder to start from: a folder, or a name on the hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for the local copy.")
    epochs: int = Field(3, ge=1, le=10_000, description="Passes over the pairs, each pair in both orders.")
    batch_size: int = Field(32, ge=1, le=100_000, description="Pairs per step.")
    rate: float = Field(1e-4, gt=0, le=1000, description="Largest learning rate; 2e-5 suits BERT-base.")
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps in which the rate rises; then it falls to 0."
    )
    weight_decay: float = Field(0.01, ge=0, le=1000, description="Weight decay of AdamW.")
    max_length: int = Field(128, ge=8, le=1_000_000, description="Tokens a pair is truncated to in training.")
    checkpoints: int = Field(2, ge=1, le=10_000, description="Evaluations on dev, each with a checkpoint, per epoch.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Type of products in training; auto: bfloat16 if the processor supports it."
    )
    seed: Seed = Field(0, description="Seed of the new layers, the order of the pairs and dropout.")


def tune_bert_sts(params: TuneBertStsParams, runtime: Runtime) -> Recipe:
    """Return the recipe of a cross-encoder that is tuned on STS-B: the model's files, as `bert_sts` loads them.

    The checkpoint with the highest Pearson's r on dev is kept. An interrupted run resumes from its last checkpoint.
    """
    paths = cache(partial(find_stsb_files, runtime))
    find_base = cache(partial(find_model, params.base, params.revision, runtime.progress))
    semantic = partial(params.model_dump, mode="json", exclude={"base", "revision"})
    inputs: Inputs = {"base": lambda: find_base().sha256()}
    inputs |= {f"stsb {split}": lambda split=split: sha256_file(paths()[split]) for split in FILES}  # type: ignore[misc]

    def fill(work: Work) -> None:
        base = find_base()
        pairs = {split: read_stsb(path) for split, path in paths().items()}
        results = train(params, base.folder, pairs, work, runtime)
        work.facts |= {"base": base.name, "pairs": {split: len(rows) for split, rows in pairs.items()}} | results
        work.runtime["base"] = base.record()

    return Recipe(KIND, f"{Path(params.base).name} on stsb", semantic, inputs, fill)


def find_stsb_files(runtime: Runtime) -> dict[str, Path]:
    """Return STS-B's files by split."""
    return {split: locate("stsb", file, runtime.data) for split, file in FILES.items()}


def pair_columns(pairs: Sequence[SentencePair]) -> dict[str, list[Any]]:
    """Return pairs as columns, each pair in both orders."""
    rows = [(p.first, p.second, p.score / 5) for p in pairs] + [(p.second, p.first, p.score / 5) for p in pairs]
    return {name: [row[i] for row in rows] for i, name in enumerate(("first", "second", "label"))}


def train(
    params: TuneBertStsParams, base: Path, pairs: Mapping[str, Sequence[SentencePair]], work: Work, runtime: Runtime
) -> dict[str, Any]:
    """Train a cross-encoder and write its files.

    `base`: folder of the encoder to start from. `pairs`: pairs of the splits train, dev and test. `work`: receives the
    model's files. Returns dict: facts of the manifest: agreement on dev and test, precision, device and steps.
    """
    device = pick_device(runtime.device)
    with quiet(), inner_threads(runtime.threads):
        trainer, precision = _make_trainer(params, base, pairs, work.folder / CHECKPOINTS, device)
        with runtime.progress.bar("cross-encoder", trainer.args.max_steps, "steps") as bar:
            trainer.add_callback(_progress_callback(bar))
            trainer.train(resume_from_checkpoint=_last_checkpoint(work.folder / CHECKPOINTS))
        model = trainer.model.eval()
        _write_model(model, work)
        agreement = {split: _correlate(model, pairs[split]) for split in ("dev", "test")}
    best = trainer.state.best_global_step
    return {
        "stsb": agreement,
        "precision": precision,
        "device": device,
        "steps": trainer.args.max_steps,
        "best_step": best,
        "dev_pearson_at": {
            str(e["step"]): round(e[_EVAL_METRIC], 5) for e in trainer.state.log_history if _EVAL_METRIC in e
        },
    }


def _make_trainer(
    params: TuneBertStsParams, base: Path, pairs: Mapping[str, Sequence[SentencePair]], folder: Path, device: str
) -> tuple[Any, str]:
    """Return the trainer of sentence-transformers, and the precision of its products."""
    try:
        import accelerate  # noqa: F401
        from datasets import Dataset
        from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments, losses
        from transformers import PrinterCallback, set_seed
    except ImportError as error:
        todo = "Run `pip install 'relabel-itr[pipeline,tune]'`."
        raise MissingError(f"training a cross-encoder needs {error.name}", todo=todo) from None
    # The new head is drawn when the model is made.
    set_seed(params.seed)
    model = load_from_folder("CrossEncoder", base, num_labels=1, max_length=params.max_length, device=device)
    columns = pair_columns(pairs["train"])
    steps = -(-len(columns["label"]) // params.batch_size)
    every = max(1, steps // params.checkpoints)
    precision = training_type(params.precision, device)
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(folder),
        max_steps=steps * params.epochs,
        per_device_train_batch_size=params.batch_size,
        learning_rate=params.rate,
        weight_decay=params.weight_decay,
        warmup_steps=round(steps * params.epochs * params.warmup),
        lr_scheduler_type="linear",
        bf16=precision == "bfloat16",
        use_cpu=device == "cpu",
        seed=params.seed,
        data_seed=params.seed,
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=1,  # beside the best one
        load_best_model_at_end=True,
        metric_for_best_model=_EVAL_METRIC,
        greater_is_better=True,
        logging_strategy="no",
        disable_tqdm=True,
        report_to="none",
        dataloader_pin_memory=False,
    )
    # With several GPUs the trainer would wrap the model in DataParallel, which the loss cannot read.
    arguments._n_gpu = min(1, arguments.n_gpu)
    sampler = _LengthBatches(columns, params.batch_size, params.seed)

    class LengthTrainer(CrossEncoderTrainer):  # type: ignore[misc]
        def get_batch_sampler(self, *_: Any, **__: Any) -> Any:
            return sampler

    trainer = LengthTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        loss=losses.BinaryCrossEntropyLoss(model),
        evaluator=_make_evaluator(pairs["dev"], device, precision),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, precision


class _LengthBatches:
    """Batches of pairs of similar length, which need little padding; their order depends on seed and epoch."""

    def __init__(self, columns: Mapping[str, list[Any]], batch_size: int, seed: int) -> None:
        lengths = [len(a) + len(b) for a, b in zip(columns["first"], columns["second"], strict=True)]
        self.lengths, self.batch_size, self.seed, self.epoch = np.array(lengths), batch_size, seed, 0
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        """Select the order of an epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the positions of each batch's pairs."""
        rng = np.random.default_rng((self.seed, self.epoch))
        order, size = rng.permutation(len(self.lengths)), self.batch_size
        batches: list[list[int]] = []
        for a in range(0, len(order), size * _SORTED_BATCHES):
            chunk = order[a : a + size * _SORTED_BATCHES]
            # Sorting within chunks keeps batches random and their lengths similar.
            chunk = chunk[np.argsort(self.lengths[chunk], kind="stable")]
            batches += [chunk[b : b + size].tolist() for b in range(0, len(chunk), size)]
        yield from (batches[i] for i in rng.permutation(len(batches)))

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return -(-len(self.lengths) // self.batch_size)


def _make_evaluator(pairs: Sequence[SentencePair], device: str, precision: str) -> Any:
    """Return the evaluator that computes Pearson's r on dev at each checkpoint."""
    from sentence_transformers.evaluation import SentenceEvaluator

    class DevEvaluator(SentenceEvaluator):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.primary_metric = _METRIC

        def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
            import torch

            fast = torch.autocast(device, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()
            with fast:
                figures = _correlate(model, pairs)
            return {_METRIC: figures["pearson"] if figures["pearson"] is not None else -1.0}

    return DevEvaluator()


def _correlate(model: Any, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    """Correlate a model's scores of some pairs, each in its given order, with human scores."""
    scores = model.predict([(p.first, p.second) for p in pairs], show_progress_bar=False, convert_to_tensor=True)
    relevance, human = round_relative(scores.double().cpu().numpy()), np.array([p.score for p in pairs])
    return {"n": len(pairs), "pearson": pearson(relevance, human), "spearman": spearman(relevance, human)}


def _progress_callback(bar: ProgressBar) -> Any:
    """Return a callback that advances the progress bar, from the step of a checkpoint on."""
    from transformers import TrainerCallback

    class ProgressCallback(TrainerCallback):
        at = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.on_step_end(args, state, control)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            bar.advance(state.global_step - self.at)
            self.at = state.global_step

    return ProgressCallback()


def _last_checkpoint(folder: Path) -> str | None:
    """Return the last complete checkpoint, after removing incomplete ones."""
    complete: dict[int, Path] = {}
    for path in sorted(folder.glob("checkpoint-*")):
        try:
            complete[int(json.loads((path / _STATE).read_text(encoding="utf-8"))["global_step"])] = path
        except (OSError, ValueError, KeyError):
            # The trainer writes its state last: without it, a checkpoint is incomplete.
            shutil.rmtree(path)
    return str(complete[max(complete)]) if complete else None


def _write_model(model: Any, work: Work) -> None:
    """Write the model's files through `work`."""
    saved = work.folder / ".saved"
    shutil.rmtree(saved, ignore_errors=True)
    model.save_pretrained(str(saved), create_model_card=False, safe_serialization=True)
    for path in sorted(saved.rglob("*")):
        if path.is_file():
            name = path.relative_to(saved).as_posix()
            work.file(name, lambda to, of=path: shutil.copyfile(of, to) and None)  # type: ignore[misc]
