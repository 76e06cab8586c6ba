"""Parameters of the experiments, read from `experiments/small.yaml`, `experiments/full.yaml` or another file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import typer
from pydantic import Field, model_validator

from experiments.rows import ROWS, Row
from relabel.config import read_yaml
from relabel.core.parameters import Parameters, validate

Budget = Literal["small", "full", "papers"]
FILE_OPTION = typer.Option("--experiments", help="Parameters of the experiments; experiments/small.yaml by default.")
"""Option of every experiment."""


class ProxyFeaturesParams(Parameters):
    """Images per split, at most, that the vectors of a caption's words represent, and the encoder of these vectors.

    `glove` are GloVe vectors with Gaussian noise, which no trained label uses; `noise` is the standard deviation, as a
    share of that of the vectors. `transformer` are token vectors of `model`, without noise: the default model is also
    the encoder of `sbert`, so a label and the features have the same source.
    """

    train: int = 3000
    val: int = 500
    test: int = 5000  # all of COCO's, so that ECCV Caption covers them
    vectors: int = 16  # of an image, the first of its caption
    encoder: Literal["glove", "transformer"] = "glove"
    noise: float = Field(0.5, ge=0)
    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    seed: int = 0


class ModelBudget(Parameters):
    """Rows that a model trains, and its size; a budget that is None is that of the table.

    `by_label` are rows that are trained with every label. `values` replaces the values of a row's main parameter. A
    model with `average` is the mean of the scores of other models. `images` is the number of test images, without ECCV
    Caption, which needs all; 0 for all.
    """

    rows: tuple[str, ...] | None = None
    by_label: tuple[str, ...] = ()
    values: dict[str, tuple[float, ...]] = Field({})
    average: tuple[str, ...] = ()
    images: int = 0
    embed_dim: int = 128  # papers have 1024
    epochs: int | None = None
    batch_size: int | None = None
    finalists: int | None = None


class FitTableParams(Parameters):
    """Models, rows and labels of the table of losses, and the budget of each training.

    `judges` are the labels of nDCG, CS@100, Kendall's tau and NCS, on the first `graded` test images.
    Learning rates ascend; `extend` further ones are tried while the best is the first or the last. The best `finalists`
    of the first search seed are trained with all of them. A training stops after `patience` epochs without a better
    RSUM on val. There is an evaluation every `evaluate_every` steps, or after each epoch. `neighbours` are those of a
    caption for graded batches.
    """

    name: str = "fit"
    train_labels: tuple[str, ...] = ("sbert", "cider")  # rows that name no label have the first
    judges: tuple[str, ...] = ("sbert", "cider")
    rows: dict[str, Row] = ROWS
    models: dict[str, ModelBudget] = Field({"vsepp": ModelBudget()})
    lrs: tuple[float, ...] = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3)
    extend: int = 2
    finalists: int = 2
    search_seeds: tuple[int, ...] = (0, 101, 102)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    epochs: int = 6
    patience: int = 2
    evaluate_every: int = 0
    batch_size: int = 128
    neighbours: int = 50
    graded: int = 1000

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        named = {n for b in self.models.values() for n in (*(b.rows or ()), *b.by_label, *b.values)}
        if unknown := sorted(named - set(self.rows)):
            raise ValueError(f"no row {', '.join(unknown)}; there are {', '.join(self.rows)}")
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
        """Return the rows `NAME, LABEL` of `by_label`: each one's row and a further label to train it with."""
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


def load_experiments(path: Path | None = None, budget: Budget = "small") -> Experiments:
    """Read the parameters of the experiments from a file, by default that of the budget.

    Raises
    ------
    RelabelError
        If the file does not exist, or a parameter is unknown or not valid.
    """
    file = path or Path(__file__).with_name(f"{budget}.yaml")
    return validate(Experiments, read_yaml(file), str(file))
