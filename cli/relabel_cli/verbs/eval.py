"""`relabel eval`."""

from __future__ import annotations

from relabel.stages.training import check_labels
from relabel_cli.options import verb
from relabel_cli.shared_options import SharedOptions
from relabel_cli.trainer import SHARED, EvalParameters, parse

NAMES = "run features captions average lookup split images graded folds eccv namespace checkpoint"


def eval(common: SharedOptions) -> None:
    """Compute every metric of a trained model."""
    parsed = parse(EvalParameters, common)
    check_labels(parsed.captions, parsed.lookup, common.runtime())
    from relabel_train.reference.evaluate import evaluate

    report = evaluate(parsed, common.device, common.runtime().progress.note)
    common.show(report.to_json(), report.text())


app = verb(eval, SHARED, EvalParameters, NAMES)
