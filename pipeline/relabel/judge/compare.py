"""All figures of a label's scores of CxC's pairs, and all tables of several labels, each from one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relabel.core.runtime import SILENT, Progress
from relabel.judge import JudgeParams
from relabel.judge.calibration import calibration_points, point_files
from relabel.judge.cxc_report import CxcFigures, PairScores, agreement, cxc_report
from relabel.judge.cxc_sampled import sampled_agreement, sampled_report
from relabel.judge.report import Report, label_fields


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


def report_compared(labels: Sequence[CxcFigures], params: JudgeParams) -> Report:
    """Report the agreement of labels with CxC's human scores, with the points of `dvc plots`."""
    report = cxc_report(labels, params.resamples, params.seed) + sampled_report(labels, params.draws, params.seed)
    return replace(report, points=point_files("cxc", report.records, labels))
