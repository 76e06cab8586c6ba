"""Everything that a training run is told, and which of it changes the outcome."""

# ruff: noqa: RUF009  (`said` makes a field)

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from relabel_train.training.errors import FitError

Sampler = Literal["random", "neighbour", "graded"]
Precision = Literal["float32", "bfloat16", "float16"]


def said(default: Any, help_text: str, needed: bool = False) -> Any:
    """Make a field of options; the command line has its help and knows whether it must be given."""
    return field(default=default, metadata={"help": help_text, "needed": needed})


@dataclass(frozen=True)
class FitOptions:
    """A training run. Defaults are VSE++ on regions as Zheng et al. (S-NDCG) train it."""

    data: Path = said(
        None, "Features: a folder of SCAN's {split}_ims.npy, or what `relabel proxy-features` made.", needed=True
    )
    captions: Path = said(None, "Corpus that `relabel ingest` made: texts, ids and splits.", needed=True)
    out: Path = said(Path("runs/fit"), "Folder of the run: checkpoints, logs, vocabulary. The same command goes on.")
    labels: Path | None = said(None, "Lookup that `relabel export lookup` wrote; losses without labels need none.")
    plan: Path | None = said(None, "Batch plan that `relabel export plan` wrote: batches and labels, instead.")
    model: str = said("vsepp", "vsepp or vse_inf.")
    text: str = said("gru", "vse_inf: gru, or a transformers model by name or folder.")
    loss: tuple[str, ...] = said(("triplet",), "Loss by name, a weight after a colon: triplet, bcls:0.5. Repeatable.")
    loss_set: tuple[str, ...] = said((), "Parameter of a loss: margin=0.1, or triplet.margin=0.1. Repeatable.")
    pooling: str | None = said(
        None, "References to one number: paired, max, mean or refs; the label's own if not given."
    )
    scale: float = said(1.0, "Labels are divided by this: 10 takes CIDEr-D to 0..1.")
    sampler: Sampler = said("random", "random, neighbour or graded.")
    sampler_set: tuple[str, ...] = said((), "Parameter of the sampler: group=16. Repeatable.")
    split: str = said("train", "Split to train on.")
    val: str = said("val", "Split whose RSUM picks the model and stops the run.")
    namespace: str | None = said(None, "SCAN features: put before image ids, as `relabel ingest` did (coco).")
    ids: Literal["image", "position"] = said("image", "SCAN features: what names images; see `relabel ingest --ids`.")
    batch_size: int = said(128, "Captions a batch, over all processes.")
    epochs: int = said(20, "Epochs.")
    lr: float = said(5e-4, "Learning rate.")
    decay_at: int | None = said(None, "Epoch (from 0) at which the rate falls to a tenth; never if not given.")
    weight_decay: float = said(0.0, "More than 0 takes AdamW.")
    warm_up: int = said(0, "Epochs of the summed triplet loss before the loss itself; vse_inf has 1 in its paper.")
    clip: float = said(2.0, "Largest norm of the gradient.")
    embed: int = said(1024, "Width of embeddings.")
    word: int = said(300, "Width of word vectors.")
    least: int = said(4, "Times a word must stand in the training captions to be known.")
    seed: int = said(0, "Draws weights, batches and whatever else is drawn.")
    precision: Precision = said("float32", "Of matrix products: float32, bfloat16, or float16 (on a GPU).")
    evaluate_every: int = said(0, "Steps between evaluations; 0: after each epoch.")
    patience: int = said(0, "Evaluations without a better RSUM after which the run stops; 0: never.")
    save_every: int = said(500, "Steps between checkpoints, besides those of evaluations.")
    log_every: int = said(10, "Steps between lines of the log.")
    workers: int = said(0, "Processes that read features and labels ahead; 0: this one.")

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for name, least in (("batch_size", 2), ("epochs", 1), ("embed", 1), ("word", 1), ("save_every", 1)):
            if getattr(self, name) < least:
                raise FitError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not (self.lr > 0 and self.clip > 0 and self.scale > 0):
            raise FitError("lr, clip and scale must be above 0")
        if self.sampler != "random" and self.labels is None:
            raise FitError(f"{self.sampler} batches need neighbours: give --labels, a lookup that has them")
        if self.labels is not None and self.plan is not None:
            raise FitError("--labels and --plan both bring labels; give one of them")

    def identity(self) -> dict[str, Any]:
        """What a checkpoint was trained with; to go on under anything else would be another run."""
        free = {"out", "workers", "log_every", "save_every", "epochs"}
        found = {name: value for name, value in asdict(self).items() if name not in free}
        return {
            name: str(v) if isinstance(v, Path) else list(v) if isinstance(v, tuple) else v for name, v in found.items()
        }


def settings(given: tuple[str, ...]) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value is JSON where it can be, else text.

    Raises
    ------
    FitError
        If there is no `=`.
    """
    import json

    found: dict[str, Any] = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise FitError(f"expected NAME=VALUE, found {setting!r}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found
