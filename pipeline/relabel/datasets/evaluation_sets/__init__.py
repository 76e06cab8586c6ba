"""Evaluation sets of texts judged by people, with one module per set for its reader and protocol.

A set is named like its module, with hyphens. To add a set, write a module with a `SET`, and describe its files by a
manifest in data_manifests/.
"""

from __future__ import annotations

import hashlib
import json
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError, choices
from relabel.datasets.registry import locate

Statistic = Literal["pearson", "spearman", "tau_b", "tau_c"]
"""Correlation coefficients. tau_b and tau_c are Kendall's; tau-c (Stuart 1953) suits scales of different lengths."""
ALL = "all"
"""Name of the group of all pairs."""
Find = Callable[..., Path]
"""Returns the verified path of a file, given its name (by default, any alternative) and its dataset (by default, that
of the set)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judgements:
    """P pairs of a reference set and a candidate, with human ratings of the pairs or choices between pairs.

    `ids`: unique ids of the pairs, used for scores computed outside of relabel.
    `both_orders`: True if the two texts of a pair are interchangeable. Each reference set is then one text, and the
        scores of both orders are averaged.
    `ratings`: (P, R) float64; R human ratings of each pair.
    `choices`: (T, C, 2) int64; T judged items of C comparisons each. Of the two pairs of a comparison, people preferred
        the first.
    `groups`: kind of each pair (ratings) or item (choices).
    `clusters`: for each entry of `groups`, the image or text shared by judgements, for bootstrap intervals.
    """

    ids: list[str]
    references: list[list[str]]
    candidates: list[str]
    both_orders: bool = False
    ratings: NDArray[np.float64] | None = None
    choices: NDArray[np.int64] | None = None
    groups: list[str]
    clusters: list[str]

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def digest_of_texts(self) -> str:
        """sha256 of the texts."""
        return _sha256([self.references, self.candidates])

    @property
    def digest_of_judgements(self) -> str:
        """sha256 of the human judgements."""
        values = [None if array is None else array.tolist() for array in (self.ratings, self.choices)]
        return _sha256([*values, self.groups, self.clusters])


def _sha256(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """A set of texts judged by people.

    `title`: title of the table, with the judged quantity.
    `dataset`: manifest of its files.
    `read`: reads the published files.
    `statistics`: statistics for ratings, starting with that of the literature. Empty for choices; they use accuracy.
    `group`: group for the main figure of the set; "all" for all pairs or the mean of all kinds. Pairs of different
        groups are compared with each other only for "all".
    `pair_ids`: description of the pair ids, for users with custom scores.
    `ties`: for choices, the value of a comparison with equal scores; 0.5 is chance level.
    `protocol`: pairs, references and statistic, as a note below the table.
    """

    name: str
    title: str
    dataset: str
    read: Callable[[Find], Judgements]
    statistics: tuple[Statistic, ...] = ()
    group: str = ALL
    pair_ids: str
    ties: float = 0.0
    protocol: str

    def open(self, data: Path) -> Judgements:
        """Read the judgements from fetched or mirrored files."""
        return self.read(lambda file=None, dataset=self.dataset: locate(dataset, file, data))


def set_names() -> tuple[str, ...]:
    """Return the names of all sets, sorted."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    # Modules with a leading underscore are readers shared by several sets.
    return tuple(sorted(name.replace("_", "-") for name in modules if not name.startswith("_")))


def evaluation_set(name: str) -> EvaluationSet:
    """Import a set by name."""
    # Checked against the list first, because a name must not import any other module.
    if name not in set_names():
        raise UsageError(f"no evaluation set {name!r}", hint=choices(name, set_names()))
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    result: EvaluationSet = module.SET
    return result


class Item(NamedTuple):
    """A judged item: one pair with ratings, or several pairs with comparisons between them.

    `pairs`: id, references and candidate of each pair.
    `better`: comparisons of two pairs of the item, by index. People preferred the first.
    `cluster`: image or text shared with other items; "" if there is none.
    """

    pairs: Sequence[tuple[str, list[str], str]]
    ratings: Sequence[float] = ()
    better: Sequence[tuple[int, int]] = ()
    group: str = ALL
    cluster: str = ""


def judgements(items: Iterable[Item], both_orders: bool = False) -> Judgements:
    """Combine items into Judgements. All items must have the same number of ratings or comparisons."""
    listed = list(items)
    ids, references, candidates = map(list, zip(*(pair for item in listed for pair in item.pairs), strict=True))
    firsts = np.cumsum([0, *(len(item.pairs) for item in listed)])[:-1, None, None]
    compared = bool(listed[0].better)
    return Judgements(
        ids=ids,
        references=references,
        candidates=candidates,
        both_orders=both_orders,
        ratings=None if compared else np.array([item.ratings for item in listed], np.float64),
        choices=np.array([item.better for item in listed], np.int64) + firsts if compared else None,
        groups=[item.group for item in listed],
        clusters=[item.cluster or str(number) for number, item in enumerate(listed)],
    )
