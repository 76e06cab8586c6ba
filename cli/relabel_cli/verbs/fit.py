"""`relabel fit`."""

from __future__ import annotations

from dataclasses import asdict

from relabel_cli.options import Overrides, verb
from relabel_cli.shared_options import SharedOptions
from relabel_cli.trainer import SHARED, check_labels, logger, parameter_model, parse, trainer_errors
from relabel_train.training.options import FitOptions

MODEL = parameter_model(FitOptions)
NAMES = "data captions labels plan out model loss epochs batch_size split namespace scale"


def fit(common: SharedOptions) -> None:
    """Train a retrieval model with graded labels, or resume its training."""
    run = parse(FitOptions, common)
    check_labels(common, run.captions, [path for path in (run.labels, run.plan) if path is not None])
    with trainer_errors():
        from relabel_train.fit import fit as train
        from relabel_train.training.distributed import launched

        result = train(run, common.device, logger(common))
    # Under torchrun, only the first process reports.
    if launched()[0] != 0:
        return
    outcome = f"best RSUM {result.best:.1f} on {run.val}, after {result.step:,} steps in {result.seconds:.0f} s"
    common.show({**asdict(result), "out": str(run.out)}, f"{outcome}\nrun {run.out}: the same command resumes it")


app = verb(fit, SHARED, Overrides(MODEL, NAMES))
