"""Parameters of the experiments, read from `experiments/small.yaml` or `experiments/full.yaml` and from options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import typer
from pydantic import Field, PrivateAttr, ValidationError, model_validator

from experiments.rows import ROWS, Row
from relabel.config import read_yaml, with_overrides
from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters, Seed, describe
from relabel.corpus.build import SPLITS
from relabel.stages import Project
from relabel.stages.job import Variant

Budget = Literal["small", "full"]
FOLDER = Path(__file__).parent
"""Folder of the parameter files of the budgets, `small.yaml` and `full.yaml`."""
FILE_OPTION = typer.Option("--experiments", help="Parameters of the experiments; experiments/small.yaml by default.")
"""Option of every experiment."""


class ProxyFeaturesParams(Parameters):
    """Images that are represented by the token vectors of a caption, and the model of these vectors."""

    images: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Images per split; by default `train`, `val` and `test`."
    )
    train: int = Field(3000, ge=0, le=2**31 - 1, description="Images of train.")
    val: int = Field(500, ge=0, le=2**31 - 1, description="Images of val.")
    test: int = Field(
        5000, ge=0, le=2**31 - 1, description="Images of test; all 5,000 of COCO, so that ECCV Caption covers them."
    )
    vectors: int = Field(16, ge=1, le=100_000, description="Token vectors per image, the first of its caption.")
    model: str = Field("sentence-transformers/all-MiniLM-L6-v2", description="Sentence encoder: name or folder.")
    revision: str | None = Field(None, description="Commit, tag or branch of a model from the Hugging Face hub.")
    seed: Seed = Field(0, description="Seed of the draw of images and of the held-out caption of each.")
    images_per_shard: int = Field(1000, ge=1, le=1_000_000, description="Images per file.")

    @property
    def counts(self) -> dict[str, int]:
        """Number of images per split.

        Examples
        --------
        >>> from experiments.params import ProxyFeaturesParams
        >>> ProxyFeaturesParams(train=10, val=5).counts
        {'train': 10, 'val': 5, 'test': 5000}
        """
        return {split: self.images or getattr(self, split) for split in SPLITS}


class ModelBudget(Parameters):
    """Rows that a model trains, and its size; a budget that is None is that of the table."""

    rows: tuple[str, ...] | None = Field(None, description="Rows; all by default.")
    by_label: tuple[str, ...] = Field((), description="Rows, further ones too, that are trained with every label.")
    values: dict[str, tuple[float, ...]] = Field(
        {}, description="Values of the main parameter by row, the default first, instead of those of the row."
    )
    average: tuple[str, ...] = Field(
        (), description="Models whose scores are averaged, instead of a training: sgraf is sgr and saf."
    )
    images: int = Field(
        0, ge=0, le=2**31 - 1, description="Number of test images, without ECCV Caption, which needs all; 0: all."
    )
    embed: int = Field(128, ge=1, le=100_000, description="Width of embeddings; papers have 1024.")
    word: int = Field(64, ge=1, le=100_000, description="Width of word vectors; papers have 300.")
    epochs: int | None = Field(None, ge=1, le=1_000_000, description="Largest number of epochs.")
    batch_size: int | None = Field(None, ge=2, le=1_000_000, description="Captions per batch.")
    lrs: tuple[float, ...] | None = Field(None, min_length=1, description="Learning rates.")
    finalists: int | None = Field(None, ge=1, le=100, description="Settings that are trained with all search seeds.")
    seeds: tuple[Seed, ...] | None = Field(None, min_length=1, description="Seeds.")


class FitTableParams(Parameters):
    """Models, rows and labels of the table of losses, and the budget of each training."""

    name: str = Field("fit", description="Folder of the table.")
    train_labels: tuple[str, ...] = Field(
        ("sbert", "cider"), min_length=1, description="Labels to train with; rows that name no label have the first."
    )
    judge: str = Field("sbert", description="Label of nDCG, CS@100 and Kendall's tau.")
    ncs: str = Field("cider", description="Label of NCS, without negative values.")
    rows: dict[str, Row] = Field(ROWS, description="Rows by name; every loss by default.")
    models: dict[str, ModelBudget] = Field(
        {"vsepp": ModelBudget()}, min_length=1, description="Models by name, as in `relabel fit --model`."
    )
    lrs: tuple[float, ...] = Field(
        (2e-4, 5e-4, 1e-3, 2e-3, 5e-3),
        min_length=1,
        description="Learning rates, ascending; a rate falls to a tenth after two thirds of the epochs.",
    )
    extend: int = Field(
        2, ge=0, le=20, description="Further learning rates that are tried while the best one is the first or the last."
    )
    finalists: int = Field(
        2, ge=1, le=100, description="Best rates, then best main parameters, that are trained with all search seeds."
    )
    search_seeds: tuple[Seed, ...] = Field(
        (0, 101, 102), min_length=1, description="Seeds of the trainings that choose; the first for every setting."
    )
    seeds: tuple[Seed, ...] = Field((1, 2, 3, 4, 5), min_length=1, description="Seeds of the trainings of the table.")
    epochs: int = Field(6, ge=1, le=1_000_000, description="Largest number of epochs of a training.")
    patience: int = Field(
        2, ge=0, le=10**9, description="Epochs without a better RSUM on val before a training stops; 0: never."
    )
    batch_size: int = Field(128, ge=2, le=1_000_000, description="Captions per batch.")
    neighbours: int = Field(50, ge=1, le=1_000_000, description="Neighbours per caption, for graded batches.")
    graded: int = Field(
        1000, ge=0, le=2**31 - 1, description="Number of test images for RSUM and the metrics of labels; 0: all."
    )

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        for model, budget in self.models.items():
            for part in budget.average:
                if part not in self.models or self.models[part].average:
                    raise ValueError(f"model {model} averages {part!r}, which is not trained")
            for name in (*(budget.rows or ()), *budget.by_label):
                if name not in self.rows:
                    raise ValueError(f"model {model} trains row {name!r}; there are {', '.join(self.rows)}")
            for name in budget.values:
                if name not in (budget.rows or self.rows) and name not in budget.by_label:
                    raise ValueError(f"model {model} has values of row {name!r}, which it does not train")
        for name, row in self.rows.items():
            if row.label is not None and row.label not in self.train_labels:
                raise ValueError(f"row {name!r} is trained with {row.label}; add it to train_labels")
        return self

    def rows_of(self, model: str) -> dict[str, Row]:
        """Return the rows that a model trains, those of `label_rows` last.

        Examples
        --------
        >>> from experiments.params import FitTableParams
        >>> budget = {"rows": ("triplet", "bcls"), "by_label": ("bcls",)}
        >>> list(FitTableParams(models={"vsepp": budget}).rows_of("vsepp"))
        ['triplet', 'bcls', 'bcls, cider']
        """
        budget = self.models[model]
        if budget.average:
            parts = [self.rows_of(part) for part in budget.average]
            return {name: row for name, row in parts[0].items() if all(name in part for part in parts)}
        names = self.rows if budget.rows is None else budget.rows
        rows = {name: self.rows[name] for name in (*names, *budget.by_label)}
        for name, values in budget.values.items():
            rows[name] = rows[name].model_copy(update={"values": values})
        for name, (base, label) in self.label_rows(model).items():
            rows[name] = rows[base].model_copy(update={"label": label})
        return rows

    def label_rows(self, model: str) -> dict[str, tuple[str, str]]:
        """Return the rows `NAME, LABEL` of `by_label`: each one's row and a further label to train it with.

        Examples
        --------
        >>> from experiments.params import FitTableParams
        >>> FitTableParams(models={"vsepp": {"by_label": ("bcls",)}}).label_rows("vsepp")
        {'bcls, cider': ('bcls', 'cider')}
        """
        return {
            f"{name}, {label}": (name, label)
            for name in self.models[model].by_label
            for label in self.train_labels
            if label != (self.rows[name].label or self.train_labels[0])
        }


class Experiments(Parameters):
    """Parameters of all experiments."""

    proxy_features: ProxyFeaturesParams = ProxyFeaturesParams()
    fit_table: FitTableParams = FitTableParams()

    _file: Experiments | None = PrivateAttr(None)

    def variant(self, project: Project, block: Callable[[Experiments], Parameters]) -> Variant:
        """Return the parameters of an artefact; options that differ from the parameter file make it a trial."""
        # The project's own parameters are inputs of the artefact and need no comparison.
        values = block(self).model_dump(mode="json")
        trial = values != block(self._file or self).model_dump(mode="json")
        return Variant(values, trial, project.runtime.replace, lambda _: "Edit the parameter file of the experiments.")


def load_experiments(
    path: Path | None = None, options: Mapping[str, Any] = {}, budget: Budget = "small"
) -> Experiments:
    """Read the parameters of the experiments.

    Parameters
    ----------
    path : Path, optional
        YAML file; that of the budget by default.
    options : mapping
        Dotted names to values that override the file; None is skipped.
    budget : "small" or "full"

    Raises
    ------
    MissingError
        If the file does not exist.
    UsageError
        If a name is not a parameter or a value is not valid.
    """
    file = path or FOLDER / f"{budget}.yaml"
    body = read_yaml(file)
    # The file alone must be valid, too: it is compared with the options to recognize trials.
    try:
        experiments = Experiments(**with_overrides(body, [], options))
        experiments._file = Experiments(**body)
    except ValidationError as error:
        raise UsageError(describe(error), where=str(file)) from error
    return experiments
