"""Rows of the table of losses: losses with their main parameter, the label they learn from, and the sampler."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from relabel.config import read_yaml
from relabel.core.parameters import Parameters


class Row(Parameters):
    """One row of the table: losses and their parameters as in `relabel fit`, and what else its training needs.

    `values` of the main parameter, the default first, replace {} in `loss` and `loss_kwargs`. `label` is by default the
    first of `train_labels`. `triplet_epochs` epochs of the summed triplet loss come before the losses. A row with a
    `fraction` of the training images takes as many steps as all others.
    """

    loss: tuple[str, ...]
    loss_kwargs: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    label: str | None = None
    sampler: Literal["random", "neighbour", "graded"] = "random"
    triplet_epochs: int = 0
    fraction: float = 1.0

    def at(self, value: float | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the losses and their parameters with a value of the main parameter.

        Examples
        --------
        >>> from experiments.rows import Row
        >>> Row(loss=("triplet", "sam:{}"), loss_kwargs=("sam.tau=0.3",), values=(5, 1)).at(5.0)
        (('triplet', 'sam:5'), ('sam.tau=0.3',))
        """
        text = "" if value is None else f"{value:g}"
        return tuple(x.replace("{}", text) for x in self.loss), tuple(x.replace("{}", text) for x in self.loss_kwargs)

    def teacher(self, default: str) -> str | None:
        """Return the label that the losses learn; None for triplets, which only leave out equal captions by it."""
        return None if all(x.partition(":")[0] == "triplet" for x in self.loss) else self.label or default


_BODY = read_yaml(Path(__file__).with_name("rows.yaml"))
ROWS: dict[str, Row] = {name: Row.model_validate(row) for name, row in _BODY.items()}
"""Default rows: those of rows.yaml."""
