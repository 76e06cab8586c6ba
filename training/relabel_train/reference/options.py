"""Options of a training run and of an evaluation, and the ones that change a run's outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Sampler = Literal["random", "neighbour", "graded"]
Precision = Literal["float32", "bfloat16", "float16"]


class FitError(ValueError):
    """Options, data or a checkpoint that training cannot work with. The message names the cause and a remedy."""

    exit_code = 2


class DivergenceError(FitError):
    """A loss that is not finite."""


def option(default: Any, help_text: str, low: float | None = None, high: float | None = None) -> Any:
    """Make a field of options: its default, ... if it is required, its help, and the bounds of a number."""
    return Field(default, description=help_text, ge=low, le=high)


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class EvalOptions(_Options):
    """Options of an evaluation."""

    run: Path = option(..., "Folder of a run of `relabel fit`.")
    features: Path = option(..., "Features, as `relabel fit` takes them.")
    captions: Path = option(..., "Corpus of `relabel ingest`.")
    average: tuple[Path, ...] = option(
        (), "Further run whose scores are averaged with those of the run: SGRAF is sgr and saf. Repeatable."
    )
    lookup: tuple[Path, ...] = option(
        (), "Lookup for nDCG, CS@K, Kendall's tau and NCS, named by its label. Repeatable."
    )
    split: str = option("test", "Split to evaluate on.")
    images: int = option(
        0, "Evaluate on the first images of the split, this many, and their captions; 0: all.", 0, 2**31 - 1
    )
    graded: int = option(1000, "Metrics of labels use the first images of the split, this many; 0: all.", 0, 2**31 - 1)
    image_labels: tuple[Path, ...] = option((), "Batches of images: retrieval of images by images. Repeatable.")
    folds: int | None = option(None, "Folds to average recalls and NCS over; 5 for COCO 1K.", 1, 1000)
    cs_ks: tuple[Annotated[int, Field(ge=2)], ...] = option((100,), "K of CS@K.")
    one_caption: bool = option(False, "Add CS@K of the first captions of images, compared with each other.")
    semantic_ms: tuple[Annotated[int, Field(ge=1)], ...] = option((), "m of Semantic Recall; omitted if empty.")
    eccv: Path | None = option(None, "Folder with the positives of ECCV Caption and CxC: `relabel fetch eccv`.")
    ids: Literal["image", "position"] = option("image", "SCAN features: source of image ids.")
    checkpoint: str = option("best.pt", "best.pt or last.pt.")


class FitOptions(_Options):
    """Options of a training run. Defaults are VSE++ on regions as Li et al. (S-NDCG) train it."""

    features: Path = option(..., "Features: a folder of SCAN's {split}_ims.npy, or one with features.json.")
    captions: Path = option(..., "Corpus of `relabel ingest`: texts, ids and splits.")
    out: Path = option(
        Path("runs/fit"), "Folder of the run: checkpoints, log, vocabulary. The same command resumes it."
    )
    lookup: Path | None = option(None, "Lookup of `relabel export lookup`; losses without labels need none.")
    batches: Path | None = option(
        None, "Precomputed batches of `relabel export batches`, which replace lookup and sampler."
    )
    model: str = option("vsepp", "vsepp, vse_inf, sgr or saf.")
    text: str = option("gru", "vse_inf: gru, or a transformers model by name or folder.")
    loss: tuple[str, ...] = option(
        ("triplet",), "Loss by name, with an optional weight: triplet, bcls:0.5. Repeatable."
    )
    loss_kwargs: tuple[str, ...] = option((), "Parameter of a loss: margin=0.1, or triplet.margin=0.1. Repeatable.")
    anchors: int = option(1, "log_ratio, dense_triplet: anchors, the first items of a batch; 0: all items.", 0, 10**9)
    triplet: float = option(0.0, "log_ratio, dense_triplet: weight of a hardest-negative triplet beside them.", 0, 1e9)
    normalize: bool | None = option(None, "Embeddings of length 1; default: not for log_ratio and dense_triplet.")
    pooling: str | None = option(
        None, "Pooling of references: first, max, mean or set; the label's default if omitted."
    )
    scale: float = option(1.0, "Labels are divided by this: 10 maps CIDEr-D to 0..1.", 1e-9, 1e9)
    sampler: Sampler = option("random", "random, neighbour or graded.")
    sampler_kwargs: tuple[str, ...] = option((), "Parameter of the sampler: group=16. Repeatable.")
    split: str = option("train", "Split to train on.")
    fraction: float = option(1.0, "Share of the split's images to train on, drawn by the seed.", 1e-6, 1)
    val: str = option("val", "Split whose RSUM selects the model and stops the run.")
    image_labels: Path | None = option(None, "Batches of images of `val`: their nDCG@10 replaces RSUM in selection.")
    ids: Literal["image", "position"] = option(
        "image", "SCAN features: source of image ids; see `relabel ingest --ids`."
    )
    batch_size: int = option(128, "Captions per batch, over all processes.", 2, 1_000_000)
    epochs: int = option(20, "Epochs.", 1, 1_000_000)
    lr: float = option(5e-4, "Learning rate.", 1e-12, 1000)
    decay_at: int | None = option(
        None, "Epoch (from 0) at which the rate falls to a tenth; never if omitted.", 0, 1_000_000
    )
    weight_decay: float = option(0.0, "Weight decay; above 0 AdamW replaces Adam.", 0, 1000)
    triplet_epochs: int = option(
        0, "Epochs of the summed triplet loss before the loss itself; 1 in the paper of vse_inf.", 0, 1_000_000
    )
    max_grad_norm: float = option(2.0, "Largest norm of the gradient.", 1e-9, 1e9)
    embed_dim: int = option(1024, "Width of embeddings.", 1, 100_000)
    word_dim: int = option(300, "Width of word vectors.", 1, 100_000)
    min_count: int = option(4, "Occurrences in the training captions that put a word into the vocabulary.", 0, 10**9)
    seed: int = option(0, "Seed of weights, batches and all other random numbers.", 0, 2**32 - 1)
    precision: Precision = option("float32", "Precision of matrix products: float32, bfloat16, or float16 (on a GPU).")
    evaluate_every: int = option(0, "Steps between evaluations; 0: after each epoch.", 0, 10**12)
    patience: int = option(0, "Evaluations without a better RSUM before the run stops; 0: never.", 0, 10**9)
    save_every: int = option(500, "Steps between checkpoints, in addition to those of evaluations.", 1, 10**12)
    log_every: int = option(10, "Steps between lines of the log.", 1, 10**12)
    workers: int = option(0, "Processes that read features and labels ahead; 0: this one.", 0, 4096)

    @model_validator(mode="after")
    def _check_labels(self) -> FitOptions:
        if self.sampler != "random" and self.lookup is None:
            raise ValueError(f"{self.sampler} batches need neighbours: give --lookup, one that has them")
        if self.lookup is not None and self.batches is not None:
            raise ValueError("--lookup and --batches both bring labels; give one of them")
        if self.fraction < 1 and self.batches is not None:
            raise ValueError(
                f"fraction={self.fraction:g} draws images, and precomputed batches are fixed: give --lookup"
            )
        return self

    @property
    def measure(self) -> str:
        """Name of the figure of `val` that selects the model."""
        return "RSUM" if self.image_labels is None else "nDCG@10"

    def identity(self) -> dict[str, Any]:
        """Return the options that identify a run: a checkpoint resumes only under the same ones.

        Features, captions, labels and batches are identified by their content, which `relabel_train.reference.fit`
        adds.
        """
        # These change where and how often files are written, and how long the run is, but no step.
        free = {"out", "workers", "log_every", "save_every", "epochs", "features", "captions", "lookup", "batches"}
        return self.model_dump(mode="json", exclude=free | {"image_labels"})


def parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs; a value is JSON if it parses, else text."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise FitError(f"expected NAME=VALUE, found {setting!r}")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values
