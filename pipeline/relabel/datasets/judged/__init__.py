"""Human-judged sets of texts: one module per set, which holds its reader, its protocol and its published figures.

The name of a set is that of its module, with hyphens. A new set is a new module with a `SET`; its files are described
by a manifest in data_manifests/.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import MissingError, UsageError, choices, command
from relabel.datasets.local_files import locate, mirror_folder
from relabel.datasets.registry import load_manifest

Statistic = Literal["pearson", "spearman", "tau_b", "tau_c"]
"""Correlation coefficients: tau_b and tau_c are Kendall's (tau-c of Stuart 1953 suits scales of different length)."""
ALL = "all"
"""Group of all pairs."""
Find = Callable[[str], Path]
"""Takes the name of a file of the set's manifest, and returns its verified path."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judgements:
    """P pairs of a reference set and a candidate, with human ratings of them or human choices between them.

    Attributes
    ----------
    ids : list of str, length P
        Unique; scores that were computed elsewhere name the pairs by them.
    references : list of list of str, length P
    candidates : list of str, length P
    both_orders : bool
        True if the two texts of a pair have equal rank: each set is one text, and the scores of both orders are
        averaged.
    ratings : (P, R) float64, optional
        R human ratings of each pair.
    choices : (T, C, 2) int64, optional
        T judged items of C comparisons each. A comparison names two pairs, of which people found the first better.
    groups : list of str
        Kind of each pair (ratings) or item (choices).
    clusters : list of str
        Image or text that judgements share, for bootstrap intervals; of the same length.
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


@dataclass(frozen=True)
class PublishedFigures:
    """Figures of a metric or model in a paper, times 100, by column of the set's table."""

    model: str
    figures: dict[str, float]
    paper: str


@dataclass(frozen=True, kw_only=True)
class JudgedSet:
    """A human-judged set.

    Attributes
    ----------
    name : str
    title : str
        The quantity judged, for the heading of a table.
    dataset : str
        Manifest that names its files.
    read : callable
        Reads the published files.
    statistics : tuple of Statistic
        Of ratings, the one of the literature first. Empty for choices, whose figure is the accuracy.
    group : str
        Group whose figure stands for the set; "all" for all pairs or the mean of all kinds. The pairs of several groups
        are compared together for "all" only.
    pair_ids : str
        Form of the ids of pairs, for users who have scores of their own.
    ties : float
        Choices: worth of a comparison whose two scores are equal; 0.5 is the chance of a guess.
    protocol : str
        Pairs that count, references and statistic, as notes below the table say them.
    unverified : tuple of str
        Files of the set that the manifest does not list, since no sha256 of them is known. They are read from the
        folder of the dataset as they are.
    published : tuple of PublishedFigures
    papers : dict of str to str
        Short name to citation.
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
    unverified: tuple[str, ...] = ()
    published: tuple[PublishedFigures, ...] = ()
    papers: dict[str, str] = field(default_factory=dict)

    def open(self, data: Path) -> Judgements:
        """Read the judgements from fetched or mirrored files.

        Raises
        ------
        MissingError
            If a file is not on this machine.
        CheckError
            If a file is not of the published form. The message names file and line.
        """
        return self.read(lambda file: self._find(file, data))

    def _find(self, file: str, data: Path) -> Path:
        if file not in self.unverified:
            return locate(self.dataset, file, data)
        # Without a sha256 the registry cannot verify the file, so the folders are searched by name alone.
        mirror = mirror_folder(None)
        for folder in (data / self.dataset, *([mirror / "judged" / self.dataset] if mirror else [])):
            if (folder / file).is_file():
                return folder / file
        homepage = load_manifest(self.dataset).homepage
        todo = f"Get it from {homepage} and put it there; {command('fetch', self.dataset)} gets the other files."
        raise MissingError(f"no file {file}", where=str(data / self.dataset), todo=todo)


def set_names() -> tuple[str, ...]:
    """Return the names of all sets, sorted.

    Examples
    --------
    >>> from relabel.datasets.judged import set_names
    >>> set_names()
    ('flickr8k-cf', 'flickr8k-expert', 'pascal-50s', 'sick', 'stsb', 'sugarcrepe-pp', 'vsts')
    """
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    # Modules that begin with an underscore are readers that several sets share.
    return tuple(sorted(name.replace("_", "-") for name in modules if not name.startswith("_")))


def judged_set(name: str) -> JudgedSet:
    """Import a set by name.

    Raises
    ------
    UsageError
        If there is no such set.

    Examples
    --------
    >>> from relabel.datasets.judged import judged_set
    >>> judged_set("vsts").statistics
    ('pearson',)
    """
    # Checked against the list first, so that no other module can be imported by its name.
    if name not in set_names():
        raise UsageError(f"no judged set {name!r}", todo=choices(name, set_names()))
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    chosen: JudgedSet = module.SET
    return chosen


def rated_sentences(
    ids: list[str], first: list[str], second: list[str], ratings: list[float], groups: list[str]
) -> Judgements:
    """Return rated pairs of sentences, whose orders count equally. Each pair is a cluster.

    Examples
    --------
    >>> from relabel.datasets.judged import rated_sentences
    >>> rated_sentences(["1"], ["a dog"], ["a puppy"], [4.5], ["all"]).references
    [['a dog']]
    """
    return Judgements(
        ids=ids,
        references=[[text] for text in first],
        candidates=second,
        both_orders=True,
        ratings=np.array(ratings)[:, None],
        groups=groups,
        # The files do not name the captions that sentences were made from, and sentences hardly repeat.
        clusters=[str(number) for number in range(len(ids))],
    )


def choices_of(items: Sequence[Sequence[tuple[int, int]]]) -> NDArray[np.int64]:
    """Stack the comparisons of items, each with equally many: (T, C, 2) int64.

    Examples
    --------
    >>> from relabel.datasets.judged import choices_of
    >>> choices_of([[(0, 1)], [(3, 2)]]).shape
    (2, 1, 2)
    """
    return np.array(items, np.int64).reshape(len(items), -1, 2)
