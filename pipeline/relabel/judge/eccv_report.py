"""Figures and table of labels as rankers on ECCV Caption: one row per label and direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from relabel.core.tables import Table
from relabel.judge.eccv import DIRECTIONS, Direction, read_eccv_scores
from relabel.judge.notes import checkpoint_notes, first_rank_note, model_notes
from relabel.judge.published_results import PAPERS, PublishedRanking, published_ranking
from relabel.judge.report import JudgedLabel, Report, label_fields

_TIES = {
    "pessimistic": "Ties: the query's own image or captions first, then all that is not positive.",
    "row": "Ties: in the order of the corpus.",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryScores(JudgedLabel):
    """A label's figures for every query of ECCV Caption.

    `tables`: as `relabel.judge.eccv.SCHEMA`; empty if the label was not ranked.
    `facts`: `ties`, `gate` and `gate_top`, as `score_eccv` wrote them; empty if the label was not ranked.
    """

    tables: dict[Direction, pa.Table]
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path, facts: Mapping[str, Any]) -> QueryScores:
        """Read the files that `score_eccv` wrote; `facts` are those of their manifest."""
        tables = read_eccv_scores(folder) if "eccv" in facts else {}
        return cls(**label_fields(facts), tables=tables, facts=facts.get("eccv", {}))


@dataclass(frozen=True)
class RankingRow:
    """Figures of one label in one direction, in percent.

    `n`: number of queries.
    `gate`: label that picked the candidates: "sbert, top 100"; None where everything was ranked.
    `published`: figures of a paper for this label.
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


def eccv_report(labels: Sequence[QueryScores]) -> Report:
    """Report labels as rankers on ECCV Caption; a note names those that were not ranked. Empty if none was."""
    ranked = [scores for scores in labels if scores.tables]
    if not ranked:
        return Report((), ())
    rows = [_row(scores, direction) for direction in DIRECTIONS for scores in ranked]
    uses = {scores.label: scores.uses for scores in ranked}
    return Report((_table(rows, labels, ranked),), tuple(_record(row) | {"uses": uses[row.label]} for row in rows))


def _row(scores: QueryScores, direction: Direction) -> RankingRow:
    table, facts = scores.tables[direction], scores.facts
    # Means over queries: a query of many positives counts as much as one of few.
    map_at_r, precision, r_at_1 = (100 * pc.mean(table[c]).as_py() for c in ("ap_at_r", "r_precision", "r_at_1"))
    return RankingRow(
        scores.label,
        scores.source,
        direction,
        len(table),
        map_at_r,
        precision,
        r_at_1,
        facts["ties"],
        f"{facts['gate']}, top {facts['gate_top']}" if facts["gate"] else None,
        published_ranking(scores.params, direction, own_model=scores.own_model),
    )


def _table(rows: list[RankingRow], labels: Sequence[QueryScores], ranked: Sequence[QueryScores]) -> Table:
    row_of = {(r.label, r.direction): r for r in rows}
    compared = any(r.published for r in rows)
    lines, gates = [], {}
    for scores in ranked:
        directions = row_of[scores.label, "i2t"], row_of[scores.label, "t2i"]
        # The gate ranks both directions, so either row names it.
        if gate := directions[0].gate:
            gates[scores.label] = gate
        cells = [f"{v:.2f}" for r in directions for v in (r.map_at_r, r.r_precision, r.r_at_1)]
        papers = [
            f"{r.published.map_at_r:.2f} / {r.published.r_precision:.2f}" if r.published else "" for r in directions
        ]
        name = f"{scores.label} *" if gate else scores.display_name
        lines.append((name, *cells, *(papers if compared else ())))
    header = ["label", "i2t mAP@R", "R-P", "R@1", "t2i mAP@R", "R-P", "R@1"]
    # Without a published figure for any label, the columns would be empty.
    header += ["S-NDCG i2t", "S-NDCG t2i"] if compared else []
    count = {r.direction: r.n for r in rows}
    unranked = ", ".join(scores.label for scores in labels if not scores.tables)
    notes = [
        f"{count['i2t']:,} image queries rank 25,000 captions (i2t), {count['t2i']:,} caption queries rank 5,000 "
        f"images (t2i). {_TIES[rows[0].ties]}",
        *first_rank_note(ranked),
        *(f"* {label}: re-ranks the best of {gate}; the rest in the gate's order." for label, gate in gates.items()),
        *([f"S-NDCG: mAP@R / R-P as printed. {PAPERS['S-NDCG']}."] if compared else []),
        *checkpoint_notes((row.label, row.published) for row in rows),
    ]
    if unranked:
        notes.append(f"Scored pair by pair and not ranked: {unranked}. `--gate sbert` re-ranks the best of sbert.")
    notes += model_notes(labels)
    return Table("ECCV Caption: labels as rankers, percent", tuple(header), tuple(lines), tuple(notes))


def _record(row: RankingRow) -> dict[str, Any]:
    paper = row.published
    return {
        "label": row.label,
        "source": row.source,
        "task": "eccv",
        "split": "test",
        "subset": row.direction,
        "n": row.n,
        "map_at_r": row.map_at_r,
        "r_precision": row.r_precision,
        "r_at_1": row.r_at_1,
        "ties": row.ties,
        "gate": row.gate,
        "paper": paper.map_at_r if paper else None,
        "paper_r_precision": paper.r_precision if paper else None,
        "paper_label": paper.label if paper else None,
        "paper_source": PAPERS[paper.paper] if paper else None,
    }
