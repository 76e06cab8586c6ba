"""Sampled Spearman correlation with human scores, the protocol of CxC's authors, beside published models.

Pairs that share an item are correlated, and CxC rates some items far more often than others. A draw therefore takes
half of the items and one rated pair of each; the figure is the mean of Spearman's rho over many draws (Parekh et al.,
EACL 2021, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of
from relabel.core.numeric.statistics import Vector, round_relative
from relabel.core.tables import Table
from relabel.datasets.cxc import SIDES, HumanScores, Side, Split, Task, human_scores
from relabel.judge import SamplingSide, SamplingUnit
from relabel.judge.cxc_report import ALL, CxcFigures, PairScores
from relabel.judge.published_results import PAPERS, SAMPLED
from relabel.judge.report import UNDEFINED, Report

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


def pair_units(human: HumanScores, side: SamplingSide, unit: SamplingUnit) -> tuple[NDArray[np.int64], ...]:
    """Return the units of each judged pair, one or two arrays of shape (P,).

    SITS pairs are drawn by their image. STS and SIS pairs are drawn by their left item, or by either of the two.

    `unit`: STS: a caption stands for itself, or for its image.
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


def sampled_agreement(
    scored: PairScores,
    draws: int = 1000,
    seed: int = 0,
    side: SamplingSide = "left",
    unit: SamplingUnit = "item",
) -> list[dict[str, Any]]:
    """Compute the sampled Spearman correlation of a label: one record per column of the table; none without draws.

    Every label that has scored the same pairs meets the same draws. Pairs that the label could not score are left out.

    `side`, `unit`: see `pair_units`.
    """
    records: list[dict[str, Any]] = []
    for task, subset, _ in COLUMNS if draws else ():
        if task not in scored.tables:
            continue
        columns = scored.columns[task]
        chosen = columns.subset(subset) & ~np.isnan(columns.relevance)
        units = tuple(u[chosen] for u in pair_units(human_scores(task, scored.split), side, unit))
        figures = sampled_spearman(columns.relevance[chosen], columns.human[chosen], units, draws, seed)
        records.append(
            {
                "task": f"{task}_sampled",
                "subset": subset,
                "sampled_spearman": figures.mean if figures else None,
                "sampled_deviation": figures.deviation if figures else None,
                "units": figures.units if figures else None,
                "draws": figures.draws if figures else None,
                # SITS draws by image in every case, and SIS has images alone.
                "draw_side": side if task != "sits" else None,
                "draw_unit": unit if task == "sts" else None,
            }
        )
    return records


def sampled_report(labels: Sequence[CxcFigures], draws: int = 1000, seed: int = 0) -> Report:
    """Report labels by CxC's own protocol, times 100, beside published models.

    `labels`: of one split. `draws`, `seed`: of the figures, for the notes.
    """
    records = [
        {"label": scored.label, "source": scored.source, "task": record["task"], "split": scored.split, **record}
        for task, subset, _ in COLUMNS
        for scored in labels
        for record in scored.sampled
        if (record["task"], record["subset"]) == (f"{task}_sampled", subset)
    ]
    if not records:
        return Report()
    record_of = {(record["label"], record["task"], record["subset"]): record for record in records}
    # The papers report the test split alone.
    published = SAMPLED if labels[0].split == "test" else ()
    lines = [
        (
            scored.display_name,
            *(_cell(record_of.get((scored.label, f"{task}_sampled", subset))) for task, subset, _ in COLUMNS),
            *([""] if published else []),
        )
        for scored in labels
    ]
    for model in published:
        # A paper's SITS figure may be of all pairs or of non-GT, so it stands in neither of these columns.
        line = (f"{model.model} [{model.paper}]", _number(model.sts), _number(model.sis), "", "", _number(model.sits))
        lines.append(line)
    units = {
        r["task"].removesuffix("_sampled"): r["units"] or 0 for r in sorted(records, key=lambda r: r["units"] or 0)
    }
    units = dict.fromkeys(SIDES, 0) | units
    noun = "images" if any(record["draw_unit"] == "image" for record in records) else "captions"
    drawn_side = "left and right" if any(record["draw_side"] == "either" for record in records) else "left"
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
            "[PromCSE] draws images in STS (here: --set judge.draw_unit=image), which gives 0.7 to 1.0 more.",
        ]
    header = ("label", *(title for *_, title in COLUMNS), *([_PUBLISHED_SITS] if published else []))
    title = f"CxC {labels[0].split}: sampled Spearman with human scores, x100"
    return Report((Table(title, header, tuple(lines), tuple(notes)),), tuple(records))


def _cell(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return ""
    if record["sampled_spearman"] is None:
        return UNDEFINED
    return f"{100 * record['sampled_spearman']:.1f} ±{100 * record['sampled_deviation']:.1f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


_CELLS = 1 << 20  # array elements of a batch of draws


@dataclass(frozen=True)
class SampledSpearman:
    """Sampled Spearman correlation.

    `mean`, `deviation`: mean and standard deviation of Spearman's rho over the draws, -1..1.
    `units`: Q, the number of items that have a pair; a draw takes ``Q // 2`` of them.
    `draws`: draws whose rho is defined.
    """

    mean: float
    deviation: float
    units: int
    draws: int


def sampled_spearman(
    relevance: Vector,
    human: Vector,
    units: Sequence[NDArray[np.integer]],
    draws: int = 1000,
    seed: int = 0,
) -> SampledSpearman | None:
    """Draw half of the units, one pair of each, and average Spearman's rho over the draws.

    Each draw takes ``Q // 2`` of the Q units without replacement and, uniformly, one of each unit's pairs. Ties share
    their mean rank.

    `relevance`: (P,) float64; finite; first rounded by `round_relative`. `human`: (P,) float64; finite. `units`: one or
    two arrays of (P,) int; units of each pair, in any numbering. Of two units, either may draw the pair. Returns None
    if rho is undefined in every draw: fewer than four units, or a constant.
    """
    from scipy.stats import rankdata

    # Numbers of both sides name the same kind of thing, so an item keeps its number. A pair of one unit counts once.
    member = np.unique(np.stack([np.concatenate(units), np.tile(np.arange(len(human)), len(units))]), axis=1)
    names, unit = np.unique(member[0], return_inverse=True)
    # The columns of `member` are sorted, so the pairs of a unit are a run.
    pairs_of, indptr = member[1], indptr_of(np.bincount(unit, minlength=len(names)))
    x, y = round_relative(relevance), human
    half = len(names) // 2
    if half < 2:
        return None
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // max(len(names), len(human)))
    rho = np.empty(draws)
    for a in range(0, draws, step):
        batch = slice(a, min(a + step, draws))
        picked = _draw_pairs(generator, batch.stop - a, half, indptr, pairs_of)
        # Ranks less their mean, (half + 1) / 2.
        rho[batch] = _correlate_rows(*(rankdata(values[picked], axis=1) - (half + 1) / 2 for values in (x, y)))
    # A draw whose relevance or human scores are all equal has no rho.
    rho = rho[np.isfinite(rho)]
    return SampledSpearman(float(rho.mean()), float(rho.std()), len(names), len(rho)) if len(rho) else None


def _draw_pairs(
    generator: np.random.Generator,
    draws: int,
    half: int,
    indptr: NDArray[np.int64],
    pairs_of: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the pairs of a batch of draws, (draws, half) int64."""
    # The `half` smallest of independent random keys are a sample without replacement.
    keys = generator.random((draws, len(indptr) - 1))
    bound = np.partition(keys, half - 1, axis=1)[:, half - 1, None]
    # Nonzero lists the units in ascending order, so that the choice of pairs depends on the seed alone.
    units = np.nonzero(keys <= bound)[1].reshape(draws, half)
    sizes = indptr[units + 1] - indptr[units]
    return pairs_of[indptr[units] + (generator.random(units.shape) * sizes).astype(np.int64)]


def _correlate_rows(a: Vector, b: Vector) -> Vector:
    """Return Pearson's r of each row of two centred matrices, (rows,) float64; NaN where a row is constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1)), np.float64)
