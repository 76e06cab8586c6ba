"""Figures and table of labels as rankers on ECCV Caption: one row per label and direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relabel.core.tables import Table
from relabel.judge.eccv import DIRECTIONS, Direction
from relabel.judge.notes import checkpoint_notes, first_rank_note, model_notes
from relabel.judge.published_results import PAPERS, Published, published
from relabel.judge.report import JudgedLabel, Report, label_fields

_TIES = {
    "pessimistic": "Ties: the query's own image or captions first, then all that is not positive.",
    "row": "Ties: in the order of the corpus.",
}
_FIGURES = ("map_at_r", "r_precision", "r_at_1")


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranking(JudgedLabel):
    """A label as a ranker.

    `gate`, `gate_top`: label that picked the candidates, and their number; None where everything was ranked.
    `figures`: of each direction: the number of queries `n`, and `map_at_r`, `r_precision` and `r_at_1` in percent.
    """

    ties: str
    gate: str | None
    gate_top: int | None
    figures: Mapping[Direction, Mapping[str, float]]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Ranking:
        """Take the figures from the facts of a ranking's manifest."""
        return cls(**label_fields(facts), **facts["eccv"])

    @property
    def candidates(self) -> str | None:
        """Candidates that are re-ranked: "sbert, top 100"; None where everything was ranked."""
        return f"{self.gate}, top {self.gate_top}" if self.gate else None

    def published(self, direction: Direction) -> Published | None:
        """Figures of a paper for this label."""
        return published(self.params, "eccv", direction, own_model=self.own_model)


def eccv_report(labels: Sequence[Ranking], unranked: Sequence[str] = ()) -> Report:
    """Report labels as rankers on ECCV Caption; empty if there is none. A note names those that were not ranked."""
    if not labels:
        return Report()
    records = [_record(label, direction) for direction in DIRECTIONS for label in labels]
    return Report((_table(labels, unranked),), tuple(records))


def _table(labels: Sequence[Ranking], unranked: Sequence[str]) -> Table:
    papers_of = {label.label: [label.published(direction) for direction in DIRECTIONS] for label in labels}
    compared = any(paper for papers in papers_of.values() for paper in papers)
    lines = []
    for label in labels:
        cells = [f"{label.figures[direction][name]:.2f}" for direction in DIRECTIONS for name in _FIGURES]
        papers = [f"{p.value:.2f} / {p.r_precision:.2f}" if p else "" for p in papers_of[label.label]]
        name = f"{label.label} *" if label.gate else label.display_name
        lines.append((name, *cells, *(papers if compared else ())))
    header = ["label", "i2t mAP@R", "R-P", "R@1", "t2i mAP@R", "R-P", "R@1"]
    # Without a published figure for any label, the columns would be empty.
    header += ["S-NDCG i2t", "S-NDCG t2i"] if compared else []
    count = {direction: labels[0].figures[direction]["n"] for direction in DIRECTIONS}
    notes = [
        f"{count['i2t']:,} image queries rank 25,000 captions (i2t), {count['t2i']:,} caption queries rank 5,000 "
        f"images (t2i). {_TIES[labels[0].ties]}",
        *first_rank_note(labels),
        *(
            f"* {label.label}: re-ranks the best of {label.candidates}; the rest in the gate's order."
            for label in labels
            if label.gate
        ),
        *([f"S-NDCG: mAP@R / R-P as printed. {PAPERS['S-NDCG']}."] if compared else []),
        *checkpoint_notes((label, paper) for label, papers in papers_of.items() for paper in papers),
    ]
    if unranked:
        names = ", ".join(unranked)
        notes.append(f"Scored pair by pair and not ranked: {names}. `--gate sbert` re-ranks the best of sbert.")
    notes += model_notes(labels)
    return Table("ECCV Caption: labels as rankers, percent", tuple(header), tuple(lines), tuple(notes))


def _record(label: Ranking, direction: Direction) -> dict[str, Any]:
    paper = label.published(direction)
    return {
        "label": label.label,
        "source": label.source,
        "task": "eccv",
        "split": "test",
        "subset": direction,
        **label.figures[direction],
        "ties": label.ties,
        "gate": label.candidates,
        "paper": paper.value if paper else None,
        "paper_r_precision": paper.r_precision if paper else None,
        "paper_label": paper.label if paper else None,
        "paper_source": PAPERS[paper.paper] if paper else None,
        "uses": label.uses,
    }
