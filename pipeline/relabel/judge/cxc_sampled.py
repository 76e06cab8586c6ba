"""Agreement of labels with CxC by the protocol of its authors: sampled Spearman, beside published models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.progress import SILENT, Progress
from relabel.core.tables import Table
from relabel.datasets.cxc import SIDES, HumanScores, Side, Split, Task, human_scores
from relabel.judge import SamplingSide, SamplingUnit
from relabel.judge.cxc_report import ALL, PairScores, with_baseline
from relabel.judge.published_results import PAPERS, SAMPLED
from relabel.judge.report import UNDEFINED, Report
from relabel.judge.sampled_spearman import SampledSpearman, sampled_spearman_of_labels

NON_GT = "c2i_intrasim"
"""Sampling method of the caption-image pairs of two images."""
COLUMNS: tuple[tuple[Task, str, str], ...] = (
    ("sts", ALL, "STS"),
    ("sis", ALL, "SIS"),
    ("sits", ALL, "SITS all"),
    ("sits", NON_GT, "SITS non-GT"),
)
"""Task, subset and title of each column of the table."""
_PUBLISHED_SITS = "SITS as printed"


@dataclass(frozen=True)
class SampledRow:
    """Sampled Spearman of one label on one subset of one task; `figures` is None where it is undefined."""

    label: str
    source: str
    task: Task
    split: Split
    subset: str
    figures: SampledSpearman | None


def pair_units(human: HumanScores, side: SamplingSide, unit: SamplingUnit) -> tuple[NDArray[np.int64], ...]:
    """Return the units of each judged pair, one or two arrays of shape (P,).

    SITS pairs are drawn by their image. STS and SIS pairs are drawn by their left item, or by either of the two.

    Parameters
    ----------
    human : HumanScores
    side : "left" or "either"
    unit : "item" or "image"
        STS: a caption stands for itself, or for its image.

    Examples
    --------
    >>> from relabel.datasets.cxc import human_scores
    >>> from relabel.judge.cxc_sampled import pair_units
    >>> scores = human_scores("sis", "test")
    >>> [len(set(units.tolist())) for units in pair_units(scores, "either", "item")]
    [4989, 4962]
    """
    ids: list[tuple[list[str], Side]] = list(zip((human.left, human.right), SIDES[human.task], strict=True))
    if human.task == "sits":
        ids = ids[1:]
    elif side == "left":
        ids = ids[:1]
    image_of = _image_of(human.split) if unit == "image" else {}
    sides = [[image_of[name] for name in names] if kind == "caption" and image_of else names for names, kind in ids]
    # One numbering for both sides: an item is the same unit on the left and on the right.
    numbers = np.unique(np.concatenate([np.array(names) for names in sides]), return_inverse=True)[1]
    return tuple(np.split(numbers.astype(np.int64), len(sides)))


@cache
def _image_of(split: Split) -> dict[str, str]:
    """Image of every caption of a split: SITS judges each caption with its own image."""
    sits = human_scores("sits", split)
    return {c: i for c, i, method in zip(sits.left, sits.right, sits.method, strict=True) if method != NON_GT}


def sampled_rows(
    labels: Sequence[PairScores],
    draws: int = 1000,
    seed: int = 0,
    side: SamplingSide = "left",
    unit: SamplingUnit = "item",
    progress: Progress = SILENT,
) -> list[SampledRow]:
    """Compute the sampled Spearman correlation of labels, rows by task, subset and label.

    Every label meets the same draws where it has scored the same pairs. Pairs that a label could not score are left
    out of the draws.

    Parameters
    ----------
    labels : sequence of PairScores
        Of one split.
    draws, seed : int
    side, unit
        See `pair_units`.
    progress : Progress
    """
    rows = []
    with progress.bar("sampled Spearman", len(COLUMNS), "columns") as bar:
        for task, subset, _ in COLUMNS:
            present = [scored for scored in labels if task in scored.tables]
            # Labels that scored the same pairs share the draws, which cost as much as the correlations.
            groups: dict[bytes, list[PairScores]] = {}
            for scored in present:
                groups.setdefault(_scored_pairs(scored, task, subset).tobytes(), []).append(scored)
            figures: dict[str, SampledSpearman | None] = {}
            for group in groups.values():
                in_subset, human = _scored_pairs(group[0], task, subset), group[0].columns[task].human
                units = tuple(u[in_subset] for u in pair_units(human_scores(task, group[0].split), side, unit))
                relevances = [scored.columns[task].relevance[in_subset] for scored in group]
                values = sampled_spearman_of_labels(relevances, human[in_subset], units, draws, seed)
                figures |= dict(zip((scored.label for scored in group), values, strict=True))
            rows += [SampledRow(s.label, s.source, task, s.split, subset, figures[s.label]) for s in present]
            bar.advance()
    return rows


def _scored_pairs(scored: PairScores, task: Task, subset: str) -> NDArray[np.bool_]:
    """Return a mask of the pairs of a subset that a label could score, (P,) bool."""
    columns = scored.columns[task]
    return np.asarray(columns.subset(subset) & ~np.isnan(columns.relevance), np.bool_)


def sampled_report(
    labels: Sequence[PairScores],
    draws: int = 1000,
    seed: int = 0,
    side: SamplingSide = "left",
    unit: SamplingUnit = "item",
    progress: Progress = SILENT,
) -> Report:
    """Report labels by CxC's own protocol, times 100, beside published models; parameters as for `sampled_rows`."""
    present = with_baseline(labels)
    if not present or not draws:
        return Report((), ())
    rows = sampled_rows(present, draws, seed, side, unit, progress)
    row_of = {(row.label, row.task, row.subset): row for row in rows}
    # The papers report the test split alone.
    published = SAMPLED if present[0].split == "test" else ()
    lines = [
        (
            scored.display_name,
            *(_cell(row_of.get((scored.label, task, subset))) for task, subset, _ in COLUMNS),
            *([""] if published else []),
        )
        for scored in present
    ]
    for model in published:
        # A paper's SITS figure may be of all pairs or of non-GT, so it stands in neither of these columns.
        line = (f"{model.model} [{model.paper}]", _number(model.sts), _number(model.sis), "", "", _number(model.sits))
        lines.append(line)
    units = {task: next((row.figures.units for row in rows if row.task == task and row.figures), 0) for task in SIDES}
    noun = "images" if unit == "image" else "captions"
    drawn_side = "left" if side == "left" else "left and right"
    notes = [
        f"A draw takes half of the Q items, and one rated pair of each: {units['sts']:,} {drawn_side} {noun} (STS), "
        f"{units['sis']:,} {drawn_side} images (SIS), {units['sits']:,} images (SITS). Mean and standard deviation of "
        f"Spearman's rho over {draws:,} draws, times 100, seed {seed}. Parekh et al., EACL 2021.",
    ]
    if published:
        notes += [
            "Models in brackets see pixels in SIS and SITS, where a label reads an image's captions. Their papers do "
            "not say if SITS is of all pairs or non-GT; the image's own caption is among the references in `SITS all`.",
            *(f"[{name}]: {PAPERS[name]}." for name in dict.fromkeys(model.paper for model in published)),
            "[PromCSE] draws images in STS (here: --draw-unit image), which gives 0.7 to 1.0 more.",
        ]
    header = ("label", *(title for *_, title in COLUMNS), *([_PUBLISHED_SITS] if published else []))
    title = f"CxC {present[0].split}: sampled Spearman with human scores, x100"
    records = [_record(row, side, unit) for row in rows]
    return Report((Table(title, header, tuple(lines), tuple(notes)),), tuple(records))


def _cell(row: SampledRow | None) -> str:
    if row is None:
        return ""
    return UNDEFINED if row.figures is None else f"{100 * row.figures.mean:.1f} ±{100 * row.figures.deviation:.1f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _record(row: SampledRow, side: SamplingSide, unit: SamplingUnit) -> dict[str, Any]:
    figures = row.figures
    return {
        "label": row.label,
        "source": row.source,
        "task": f"{row.task}_sampled",
        "split": row.split,
        "subset": row.subset,
        "sampled_spearman": figures.mean if figures else None,
        "sampled_deviation": figures.deviation if figures else None,
        "units": figures.units if figures else None,
        "draws": figures.draws if figures else None,
        # SITS draws by image in every case, and SIS has images alone.
        "draw_side": side if row.task != "sits" else None,
        "draw_unit": unit if row.task == "sts" else None,
    }
