"""All figures of a label's scores of CxC's pairs, from one call."""

from __future__ import annotations

from relabel.core.runtime import SILENT, Progress
from relabel.judge import JudgeParams
from relabel.judge.calibration import calibration_points
from relabel.judge.cxc_report import CxcFigures, PairScores, agreement
from relabel.judge.cxc_sampled import sampled_agreement
from relabel.judge.report import label_fields


def compare(scored: PairScores, params: JudgeParams, progress: Progress = SILENT, threads: int = 1) -> CxcFigures:
    """Compare scores of CxC's pairs with the human scores."""
    return CxcFigures(
        **label_fields(scored),
        split=scored.split,
        include_self=scored.include_self,
        agreement=agreement(scored, params.resamples, params.seed, progress, threads),
        sampled=sampled_agreement(scored, params.draws, params.seed, params.draw_side, params.draw_unit),
        calibration=calibration_points([scored]),
    )
