"""Sets of texts that people judged: one module per set, which holds its reader and its protocol.

The name of a set is that of its module, with hyphens. A new set is a new module with a `SET`; its files are described
by a manifest in data_manifests/.
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
"""Correlation coefficients: tau_b and tau_c are Kendall's (tau-c of Stuart 1953 suits scales of different length)."""
ALL = "all"
"""Group of all pairs."""
Find = Callable[..., Path]
"""Takes the name of a file (by default, any alternative) and of its dataset (by default, the set's own), and returns
its verified path."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judgements:
    """P pairs of a reference set and a candidate, with human ratings of them or human choices between them.

    `ids`: unique; scores that were computed elsewhere name the pairs by them.
    `both_orders`: True if the two texts of a pair have equal rank: each set is one text, and the scores of both orders
        are averaged.
    `ratings`: (P, R) float64; R human ratings of each pair.
    `choices`: (T, C, 2) int64; T judged items of C comparisons each. A comparison names two pairs, of which people
        found the first better.
    `groups`: kind of each pair (ratings) or item (choices).
    `clusters`: image or text that judgements share, for bootstrap intervals; of the same length.
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
        """Identity of the texts."""
        return _sha256([self.references, self.candidates])

    @property
    def digest_of_judgements(self) -> str:
        """Identity of what people said about the pairs."""
        values = [None if one is None else one.tolist() for one in (self.ratings, self.choices)]
        return _sha256([*values, self.groups, self.clusters])


def _sha256(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """A set of texts that people judged.

    `title`: the quantity judged, for the heading of a table.
    `dataset`: manifest that names its files.
    `read`: reads the published files.
    `statistics`: of ratings, the one of the literature first. Empty for choices, whose figure is the accuracy.
    `group`: group whose figure stands for the set; "all" for all pairs or the mean of all kinds. The pairs of several
        groups are compared together for "all" only.
    `pair_ids`: form of the ids of pairs, for users who have scores of their own.
    `ties`: choices: worth of a comparison whose two scores are equal; 0.5 is the chance of a guess.
    `protocol`: pairs that count, references and statistic, as notes below the table say them.
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
    # Modules that begin with an underscore are readers that several sets share.
    return tuple(sorted(name.replace("_", "-") for name in modules if not name.startswith("_")))


def evaluation_set(name: str) -> EvaluationSet:
    """Import a set by name."""
    # Checked against the list first, so that no other module can be imported by its name.
    if name not in set_names():
        raise UsageError(f"no evaluation set {name!r}", todo=choices(name, set_names()))
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    chosen: EvaluationSet = module.SET
    return chosen


class Item(NamedTuple):
    """What people judged at once: a pair with ratings, or several pairs with comparisons of them.

    `pairs`: id, references and candidate of each pair.
    `better`: pairs of the item by number, of which people found the first better.
    `cluster`: "" for an item that shares no image or text with another.
    """

    pairs: Sequence[tuple[str, list[str], str]]
    ratings: Sequence[float] = ()
    better: Sequence[tuple[int, int]] = ()
    group: str = ALL
    cluster: str = ""


def judgements(items: Iterable[Item], both_orders: bool = False) -> Judgements:
    """Join items, which have equally many ratings or equally many comparisons."""
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
