"""Parameters of the experiments, read from `experiments/params.yaml` and from options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import Field, PrivateAttr, ValidationError

from relabel.config import read_yaml, with_overrides
from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters, Seed, describe
from relabel.corpus.build import SPLITS
from relabel.stages import Project
from relabel.stages.job import Variant

FILE = Path(__file__).parent / "params.yaml"
"""Default parameter file."""
FILE_OPTION = typer.Option("--experiments", help="Parameters of the experiments; experiments/params.yaml by default.")
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


class Row(Parameters):
    """One row of the table: losses, the label they are trained with, and the sampler of batches."""

    loss: tuple[str, ...] = Field(description="Names of losses, as in `relabel fit --loss`.")
    loss_set: tuple[str, ...] = Field((), description="Parameters of the losses, as in `relabel fit --loss-set`.")
    label: str | None = Field(None, description="Label; by default the first of `train_labels`.")
    sampler: Literal["random", "neighbour", "graded"] = Field("random", description="Sampler of batches.")


_NAMES = (
    "triplet",
    "kendall",
    "sliding_window_kendall",
    "bcls",
    "ladder",
    "sam",
    "smooth_ndcg",
    "smooth_ndcg_triplet",
    "log_ratio",
    "dense_triplet",
    "soft_target",
    "multi_positive_infonce",
)
COMPARED = ("bcls", "smooth_ndcg_triplet")
"""Losses that are also trained with graded batches."""
BY_LABEL = "smooth_ndcg_triplet"
"""Loss that is trained with every label: it accepts labels of any range and has no threshold."""

ROWS: dict[str, Row] = {name: Row(loss=(name,)) for name in _NAMES}
ROWS["triplet_soft"] = Row(loss=("triplet",), loss_set=("negatives=soft",))
ROWS |= {f"{name}, graded batches": Row(loss=(name,), sampler="graded") for name in COMPARED}
"""Default rows; `FitTableParams.all_rows` adds a row `LOSS, LABEL` per further label."""


class FitTableParams(Parameters):
    """Rows of the table of losses, and the budget of each training."""

    train_labels: tuple[str, ...] = Field(
        ("sbert", "cider"),
        min_length=1,
        description="Labels; every loss is trained with the first, and one loss with each of the others.",
    )
    judge: str = Field("sbert", description="Label of nDCG, CS@100 and Kendall's tau.")
    ncs: str = Field("cider", description="Label of NCS, without negative values.")
    rows: dict[str, Row] | None = Field(None, description="Rows by name; every loss by default.")
    seeds: tuple[Seed, ...] = Field((0, 1, 2), min_length=1, description="Seeds; each row is trained once per seed.")
    model: str = Field("vsepp", description="vsepp or vse_inf.")
    embed: int = Field(
        128, ge=1, le=100_000, description="Width of embeddings: the small configuration; papers have 1024."
    )
    word: int = Field(64, ge=1, le=100_000, description="Width of word vectors; papers have 300.")
    epochs: int = Field(6, ge=1, le=1_000_000, description="Epochs per training.")
    batch_size: int = Field(128, ge=2, le=1_000_000, description="Captions per batch.")
    lr: float = Field(
        2e-3, gt=0, le=1000, description="Learning rate; falls to a tenth after two thirds of the epochs."
    )
    neighbours: int = Field(50, ge=1, le=1_000_000, description="Neighbours per caption, for graded batches.")
    graded: int = Field(
        1000, ge=0, le=2**31 - 1, description="Number of test images for RSUM and the metrics of labels; 0: all."
    )

    def all_rows(self) -> dict[str, Row]:
        """Return `rows` if set, else every loss with the first label and one row per further label."""
        if self.rows is not None:
            return self.rows
        rows = dict(ROWS)
        if "cider" in self.train_labels:
            # The paper's threshold of 3, for labels that are divided by 10.
            rows["sam"] = Row(loss=("sam",), loss_set=("tau=0.3",), label="cider")
        by_label = {f"{BY_LABEL}, {label}": Row(loss=(BY_LABEL,), label=label) for label in self.train_labels[1:]}
        return rows | by_label


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


def load_experiments(path: Path | None = None, options: Mapping[str, Any] = {}) -> Experiments:
    """Read the parameters of the experiments.

    Parameters
    ----------
    path : Path, optional
        YAML file; `experiments/params.yaml` by default.
    options : mapping
        Dotted names to values that override the file; None is skipped.

    Raises
    ------
    MissingError
        If the file does not exist.
    UsageError
        If a name is not a parameter or a value is not valid.
    """
    file = path or FILE
    body = read_yaml(file)
    # The file alone must be valid, too: it is compared with the options to recognize trials.
    try:
        experiments = Experiments(**with_overrides(body, [], options))
        experiments._file = Experiments(**body)
    except ValidationError as error:
        raise UsageError(describe(error), where=str(file)) from error
    return experiments
