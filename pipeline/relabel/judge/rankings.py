"""From ranked queries to figures: one row a label and direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relabel.judge.eccv import read_eccv_scores
from relabel.judge.eccv_queries import DIRECTIONS, Direction
from relabel.judge.published import PublishedRanking, published_ranking


@dataclass(frozen=True, eq=False)
class Ranked:
    """A label's figures for every query of ECCV Caption.

    Attributes
    ----------
    label : str
    params : mapping
        The source's parameters, `source` and `pooling` among them; they pick the paper's figure.
    tables : dict of Direction to pyarrow.Table
        As `relabel.judge.eccv.SCHEMA`.
    facts : mapping
        `ties`, `gate` and `gate_top`, as `score_eccv` wrote them.
    """

    label: str
    params: Mapping[str, Any]
    tables: dict[Direction, pa.Table]
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path, facts: Mapping[str, Any]) -> Ranked:
        """Read what `score_eccv` wrote; `facts` are its manifest's, `label` and `params` among them.

        Raises
        ------
        MissingError
            If there is no ranking.
        """
        return cls(facts["label"], facts["params"], read_eccv_scores(folder), facts["eccv"])


@dataclass(frozen=True)
class RankingRow:
    """How well one label ranks ECCV Caption in one direction; figures in percent.

    Attributes
    ----------
    direction : "i2t" or "t2i"
    n : int
        Queries.
    gate : str or None
        What picked the candidates: "sbert, top 100"; None where everything was ranked.
    published : PublishedRanking or None
        What a paper reports for this label.
    """

    label: str
    source: str
    direction: Direction
    n: int
    map_at_r: float
    r_precision: float
    r_at_1: float
    ties: str
    gate: str | None
    published: PublishedRanking | None


def rank(labels: Sequence[Ranked]) -> list[RankingRow]:
    """Make rows of all labels, ordered by direction, label."""
    return [_row(ranked, direction) for direction in DIRECTIONS for ranked in labels]


def _row(ranked: Ranked, direction: Direction) -> RankingRow:
    table, facts = ranked.tables[direction], ranked.facts
    map_at_r, precision, r_at_1 = (100 * pc.mean(table[c]).as_py() for c in ("ap_at_r", "r_precision", "r_at_1"))
    return RankingRow(
        ranked.label,
        str(ranked.params["source"]),
        direction,
        len(table),
        map_at_r,
        precision,
        r_at_1,
        facts["ties"],
        f"{facts['gate']}, top {facts['gate_top']}" if facts["gate"] else None,
        published_ranking(ranked.params, direction),
    )
