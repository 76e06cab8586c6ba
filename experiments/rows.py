"""Rows of the table of losses: losses with their main parameter, the label they learn from, and the sampler."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from relabel.config import read_yaml
from relabel.core.parameters import Parameters


class Row(Parameters):
    """One row of the table: a loss, or the losses of a sum, as in `relabel fit`, and what else its training needs.

    `values` of the main parameter, the default first, replace "{}" in `loss`. `label` is by default the first of
    `train_labels`. `triplet_epochs` epochs of the summed triplet loss come before the losses. A row with a `fraction`
    of the training images takes as many steps as all others.
    """

    loss: dict[str, Any] | list[dict[str, Any]]
    values: tuple[float, ...] = ()
    label: str | None = None
    sampler: Literal["random", "neighbour", "graded"] = "random"
    triplet_epochs: int = 0
    fraction: float = 1.0

    def at(self, value: float | None) -> list[dict[str, Any]]:
        """Return the losses with a value of the main parameter.

        Examples
        --------
        >>> from experiments.rows import Row
        >>> Row(loss={"name": "ladder", "weights": [1, "{}"]}, values=(0.25, 0.1)).at(0.1)
        [{'name': 'ladder', 'weights': [1, 0.1]}]
        """
        losses: list[dict[str, Any]] = _filled(self.loss if isinstance(self.loss, list) else [self.loss], value)
        return losses

    def teacher(self, default: str) -> str | None:
        """Return the label that the losses learn; None for triplets, which only leave out equal captions by it."""
        return None if all(loss["name"] == "triplet" for loss in self.at(None)) else self.label or default


def _filled(body: Any, value: float | None) -> Any:
    """Replace "{}" in nested lists and mappings."""
    if isinstance(body, dict):
        return {name: _filled(entry, value) for name, entry in body.items()}
    if isinstance(body, list):
        return [_filled(entry, value) for entry in body]
    return value if body == "{}" else body


_BODY = read_yaml(Path(__file__).with_name("rows.yaml"))
ROWS: dict[str, Row] = {name: Row.model_validate(row) for name, row in _BODY.items()}
"""Default rows: those of rows.yaml."""
