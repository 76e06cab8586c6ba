"""Options of a training run and of an evaluation, and choices of a class with its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, create_model, field_validator

Choice = str | dict[str, Any]
"""A model, loss or sampler: NAME, or ``{name: NAME, PARAMETER: VALUE}`` with parameters of its class."""
Losses = Choice | Annotated[list[Choice], Field(min_length=1)]
"""A loss, or a sum of losses: ``[{name: triplet}, {name: sam, factor: 5}]``."""


class FitError(ValueError):
    """Options, data or a checkpoint that training cannot work with. The message names the cause and a remedy."""

    exit_code = 2


class DivergenceError(FitError):
    """A loss or a gradient that is not finite."""


def option(default: Any, help_text: str, low: float | None = None, high: float | None = None) -> Any:
    """Make a field of options: its default, ... if it is required, its help, and the bounds of a number."""
    return Field(default, description=help_text, ge=low, le=high)


def setting(default: Any, help_text: str, low: float | None = None, high: float | None = None) -> Any:
    """Make a field that is set with `--set` and does not have its own option."""
    return Field(default, description=help_text, ge=low, le=high, json_schema_extra={"option": False})


GIVEN = {"batch_size", "depth", "generator"}
"""Parameters that the training sets."""


class Parameters(BaseModel):
    """Parameters of a class. `of` makes the model of a class from its signature, their only definition."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    target: ClassVar[Callable[..., Any]]
    name: str

    @classmethod
    def of(cls, target: type) -> type[Self]:
        """Return the model of the parameters of a class that have a default."""
        hints, parameters = get_type_hints(target.__init__), inspect.signature(target).parameters  # type: ignore[misc]
        known = {*GIVEN, *cls.model_fields}
        names = [name for name, p in parameters.items() if p.default is not p.empty and name not in known]
        fields: dict[str, Any] = {name: (hints[name], parameters[name].default) for name in names}
        model = create_model(target.__name__, __base__=cls, **fields)
        model.target = target
        return model

    def make(self, *given: Any, **more: Any) -> Any:
        """Make an object of the class; `given` and `more` are its other arguments."""
        names = inspect.signature(self.target).parameters
        with naming_choice(self.name):
            return self.target(*given, **{name: value for name, value in self if name in names} | more)


@contextmanager
def naming_choice(name: str) -> Iterator[None]:
    """Raise a FitError with the name of a choice for the errors of its parameters."""
    try:
        yield
    except (IndexError, TypeError, ValueError) as error:
        raise FitError(f"{name}: {error}") from error


P = TypeVar("P", bound=Parameters)


def choose(kind: str, models: Mapping[str, type[P]], choice: Choice) -> P:
    """Return the parameters that a choice gives; `kind`: "loss", "model" or "sampler", for the error."""
    values: dict[str, Any] = {"name": choice} if isinstance(choice, str) else choice
    model = models.get(str(values.get("name")))
    if model is None:
        raise FitError(f"no {kind} {values.get('name')!r}; there are {', '.join(models)}")
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        names = ", ".join(sorted({*model.model_fields} - {"name"}))
        raise FitError(f"{kind} {values['name']}: {reason}. Its parameters are {names}.") from error


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


class EvalOptions(_Options):
    """Options of an evaluation."""

    run: Path = option(..., "Folder of a run of `relabel fit`.")
    features: Path = option(..., "Features, as `relabel fit` takes them.")
    captions: Path = option(..., "Corpus of `relabel ingest`.")
    average: tuple[Path, ...] = option((), "Average the scores of this run with those of --run (SGRAF). Repeatable.")
    lookup: tuple[Path, ...] = option((), "Lookup for metrics of its label, such as nDCG and CS@K. Repeatable.")
    split: str = option("test", "Split to evaluate on.")
    images: int = option(0, "Evaluate on the first images of the split only; 0: all.", 0, 2**31 - 1)
    graded: int = option(1000, "Number of these images for metrics that use labels; 0: all.", 0, 2**31 - 1)
    image_labels: tuple[Path, ...] = option((), "Batches of images: retrieval of images by images. Repeatable.")
    folds: int | None = option(None, "Folds to average recalls and NCS over; 5 for COCO 1K.", 1, 1000)
    cs_ks: tuple[Annotated[int, Field(ge=2)], ...] = setting((100,), "K of CS@K.")
    one_caption: bool = setting(False, "Add CS@K of the first captions of images, compared with each other.")
    semantic_ms: tuple[Annotated[int, Field(ge=1)], ...] = setting((), "m of Semantic Recall; omitted if empty.")
    eccv: Path | None = option(None, "Folder with the positives of ECCV Caption and CxC: `relabel fetch eccv`.")


class FitOptions(_Options):
    """Options of a training run. Defaults are VSE++ on regions as Li et al. (S-NDCG) train it."""

    features: Path = option(..., "Features: a folder of SCAN's {split}_ims.npy, or one with features.json.")
    captions: Path = option(..., "Corpus of `relabel ingest`: texts, ids and splits.")
    out: Path = option(Path("runs/fit"), "Folder of the run. The same command resumes it.")
    lookup: Path | None = option(None, "Lookup of `relabel export lookup`; losses without labels need none.")
    split: str = option("train", "Split to train on.")
    fraction: float = setting(1.0, "Share of the split's images to train on, drawn by the seed.", 1e-6, 1)
    batches: Path | None = option(None, "Batches of `relabel export batches`; they replace lookup and sampler.")
    image_labels: Path | None = option(None, "Batches of images of `val`: select the model by their nDCG@10, not RSUM.")
    model: Choice = option("vsepp", "vsepp, vse_inf, sgr or saf; --set model.embed_dim=256 sets a parameter.")
    loss: Losses = option("triplet", "Loss by name; --set loss.margin=0.1 sets a parameter.")
    sampler: Choice = setting("random", "random, neighbour or graded; sampler.group=16 sets a parameter.")
    pooling: str | None = setting(None, "Pooling of references: first, max, mean or set; default: that of the label.")
    scale: float = option(1.0, "Labels are divided by this: 10 maps CIDEr-D to 0..1.", 1e-9, 1e9)
    val: str = setting("val", "Split for model selection and early stopping by RSUM.")
    batch_size: int = option(128, "Captions per batch.", 2, 1_000_000)
    epochs: int = option(20, "Epochs.", 1, 1_000_000)
    lr: float = setting(5e-4, "Learning rate.", 1e-12, 1000)
    decay_at: int | None = setting(None, "Number of epochs after which the rate falls to a tenth.", 1, 1_000_000)
    weight_decay: float = setting(0.0, "Weight decay of AdamW.", 0, 1000)
    triplet_epochs: int = setting(0, "Epochs of the summed triplet loss, before the loss itself.", 0, 1_000_000)
    min_count: int = setting(4, "Occurrences in the training captions that put a word into the vocabulary.", 0, 10**9)
    seed: int = setting(0, "Seed of weights, batches and all other random numbers.", 0, 2**32 - 1)
    precision: Literal["float32", "bfloat16"] = setting("float32", "Precision of matrix products.")
    evaluate_every: int = setting(0, "Steps between evaluations; 0: after each epoch.", 0, 10**12)
    patience: int = setting(0, "Evaluations without a better RSUM before the run stops; 0: never.", 0, 10**9)
    log_every: int = setting(10, "Steps between lines of the log; each waits for the GPU.", 1, 10**12)

    @field_validator("model", "loss", "sampler", mode="before")
    @classmethod
    def _write_choice(cls, value: Any, info: ValidationInfo) -> Any:
        """Write NAME as ``{name: NAME}``, so both forms are one run; parameters without a name are of the default."""
        if isinstance(value, list):
            return [cls._write_choice(item, info) for item in value]
        default = cls.model_fields[str(info.field_name)].default
        return {"name": default, **value} if isinstance(value, dict) else {"name": value}

    @field_validator("batches")
    @classmethod
    def _check_batches(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and (info.data.get("lookup") is not None or info.data.get("fraction", 1.0) < 1):
            raise ValueError("they are fixed and bring labels: omit --lookup and `fraction`, or --batches")
        return value

    @property
    def measure(self) -> str:
        """Name of the figure of `val` that selects the model."""
        return "RSUM" if self.image_labels is None else "nDCG@10"

    def identity(self) -> dict[str, Any]:
        """Return the options that a checkpoint resumes under; files are identified by their content instead."""
        # `epochs` is free: more of them continue a finished run.
        files = {"out", "features", "captions", "lookup", "batches", "image_labels"}
        return self.model_dump(mode="json", exclude=files | {"epochs", "log_every"})
