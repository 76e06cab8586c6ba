"""`relabel eval`."""

from __future__ import annotations

from relabel_cli.options import Overrides, verb
from relabel_cli.shared_options import SharedOptions
from relabel_cli.trainer import SHARED, check_labels, logger, parameter_model, parse, trainer_errors
from relabel_train.training.options import EvalOptions

MODEL = parameter_model(EvalOptions)
NAMES = "run data captions average labels split images graded folds eccv namespace checkpoint"


def eval(common: SharedOptions) -> None:
    """Compute every metric of a trained model."""
    parsed = parse(EvalOptions, common)
    check_labels(common, parsed.captions, parsed.labels)
    with trainer_errors():
        from relabel_train.evaluate import evaluate

        report = evaluate(parsed, common.device, logger(common))
    common.show(report.to_json(), report.text())


app = verb(eval, SHARED, Overrides(MODEL, NAMES))
