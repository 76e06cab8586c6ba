"""The training of a cross-encoder: sentence-transformers' trainer, seeded, quiet, going on from its checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relabel.core.errors import MissingError
from relabel.core.numeric.statistics import pearson, round_relative, spearman
from relabel.core.numeric.torch_threads import inner_threads
from relabel.core.progress import ProgressBar
from relabel.core.runtime import Runtime, pick_device
from relabel.datasets.stsb import SentencePair
from relabel.sources.models.loading import load_from_folder, quiet
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.tune import TuneBertStsParams

CHECKPOINTS = "checkpoints"
_STATE = "trainer_state.json"  # what the trainer writes last into a checkpoint
_TOGETHER = 50  # batches among which pairs are sorted by length
_METRIC = "dev_pearson"
_AT = f"eval_{_METRIC}"


def train(
    params: TuneBertStsParams, base: Path, pairs: Mapping[str, Sequence[SentencePair]], work: Work, runtime: Runtime
) -> dict[str, Any]:
    """Train, write the model's files through `work`, and return what its manifest reports.

    Raises
    ------
    MissingError
        If accelerate or datasets is not installed, or the device is not there.
    CheckError
        If the base model cannot be loaded.
    """
    device = pick_device(runtime.device)
    with quiet(), inner_threads(runtime.threads):
        trainer, precision = _trainer(params, base, pairs, work.folder / CHECKPOINTS, device)
        with runtime.progress.bar("cross-encoder", trainer.args.max_steps, "steps") as bar:
            trainer.add_callback(_telling(bar))
            trainer.train(resume_from_checkpoint=_last_checkpoint(work.folder / CHECKPOINTS))
        model = trainer.model.eval()
        _write(model, work)
        found = {split: _agreement(model, pairs[split]) for split in ("dev", "test")}
    best = trainer.state.best_global_step
    return {
        "stsb": found,
        "precision": precision,
        "device": device,
        "steps": trainer.args.max_steps,
        "best_step": best,
        "dev_pearson_at": {str(e["step"]): round(e[_AT], 5) for e in trainer.state.log_history if _AT in e},
    }


def _trainer(
    params: TuneBertStsParams, base: Path, pairs: Mapping[str, Sequence[SentencePair]], folder: Path, device: str
) -> tuple[Any, str]:
    try:
        import accelerate  # noqa: F401
        from datasets import Dataset
        from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments, losses
        from transformers import PrinterCallback, set_seed
    except ImportError as error:
        todo = "Run `pip install 'relabel-itr[pipeline,tune]'`."
        raise MissingError(f"training a cross-encoder needs {error.name}", todo=todo) from None
    from relabel.sources.bert_sts.tune import both_orders

    set_seed(params.seed)  # the new head is drawn when the model is made
    model = load_from_folder("CrossEncoder", base, num_labels=1, max_length=params.max_length, device=device)
    columns = both_orders(pairs["train"])
    steps = -(-len(columns["label"]) // params.batch_size)
    every = max(1, steps // params.checkpoints)
    precision = params.precision if params.precision != "auto" else _fast_precision(device)
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
        metric_for_best_model=_AT,
        greater_is_better=True,
        logging_strategy="no",
        disable_tqdm=True,
        report_to="none",
        dataloader_pin_memory=False,
    )
    sampler = _ByLength(columns, params.batch_size, params.seed)

    class Trainer(CrossEncoderTrainer):  # type: ignore[misc]
        def get_batch_sampler(self, *_: Any, **__: Any) -> Any:
            return sampler

    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        loss=losses.BinaryCrossEntropyLoss(model),
        evaluator=_evaluator(pairs["dev"], device, precision),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, precision


def _fast_precision(device: str) -> str:
    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    has = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)() or (
        getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
    )
    return "bfloat16" if has else "float32"


class _ByLength:
    """Batches of pairs of about one length, so that little is padded. Seeded, another order an epoch."""

    def __init__(self, columns: Mapping[str, list[Any]], batch_size: int, seed: int) -> None:
        lengths = [len(a) + len(b) for a, b in zip(columns["first"], columns["second"], strict=True)]
        self.lengths, self.batch_size, self.seed, self.epoch = np.array(lengths), batch_size, seed, 0
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        """Take the order of an epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        draw = np.random.default_rng((self.seed, self.epoch))
        order, size = draw.permutation(len(self.lengths)), self.batch_size
        batches: list[list[int]] = []
        for a in range(0, len(order), size * _TOGETHER):
            some = order[a : a + size * _TOGETHER]
            some = some[np.argsort(self.lengths[some], kind="stable")]
            batches += [some[b : b + size].tolist() for b in range(0, len(some), size)]
        yield from (batches[i] for i in draw.permutation(len(batches)))

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)


def _evaluator(pairs: Sequence[SentencePair], device: str, precision: str) -> Any:
    """Make what the trainer asks at each checkpoint: Pearson on dev."""
    from sentence_transformers.evaluation import SentenceEvaluator

    class OnDev(SentenceEvaluator):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.primary_metric = _METRIC

        def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
            fast = torch.autocast(device, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()
            with fast:
                found = _agreement(model, pairs)
            return {_METRIC: found["pearson"] if found["pearson"] is not None else -1.0}

    return OnDev()


def _agreement(model: Any, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    """Hold a model's own scores of some pairs, as they stand, against people's."""
    scores = model.predict([(p.first, p.second) for p in pairs], show_progress_bar=False, convert_to_tensor=True)
    relevance, human = round_relative(scores.double().cpu().numpy()), np.array([p.score for p in pairs])
    return {"n": len(pairs), "pearson": pearson(relevance, human), "spearman": spearman(relevance, human)}


def _telling(bar: ProgressBar) -> Any:
    """Make a callback that moves the bar, from where a checkpoint stands."""
    from transformers import TrainerCallback

    class Telling(TrainerCallback):
        at = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.on_step_end(args, state, control)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            bar.advance(state.global_step - self.at)
            self.at = state.global_step

    return Telling()


def _last_checkpoint(folder: Path) -> str | None:
    """Find the last checkpoint that is whole; drop what a kill left half written."""
    whole: dict[int, Path] = {}
    for path in sorted(folder.glob("checkpoint-*")):
        try:
            whole[int(json.loads((path / _STATE).read_text(encoding="utf-8"))["global_step"])] = path
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path)
    return str(whole[max(whole)]) if whole else None


def _write(model: Any, work: Work) -> None:
    """Commit the model's files."""
    saved = work.folder / "saved"
    shutil.rmtree(saved, ignore_errors=True)
    model.save_pretrained(str(saved), create_model_card=False, safe_serialization=True)
    for path in sorted(saved.rglob("*")):
        if path.is_file():
            name = path.relative_to(saved).as_posix()
            work.file(name, lambda to, of=path: shutil.copyfile(of, to) and None)  # type: ignore[misc]
