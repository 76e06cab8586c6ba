"""`relabel fit`."""

from __future__ import annotations

from dataclasses import asdict

from relabel.stages.training import check_labels
from relabel_cli.options import SharedOptions, verb
from relabel_cli.trainer import SHARED, FitParameters, parse


def fit(common: SharedOptions) -> None:
    """Train a retrieval model with graded labels, or resume its training."""
    run = parse(FitParameters, common)
    folders = [path for path in (run.lookup, run.batches, run.image_labels) if path is not None]
    check_labels(run.captions, folders, common.runtime())
    from relabel_train.reference.fit import fit as train

    result = train(run, common.device, common.runtime().progress.note)
    outcome = (
        f"best {run.measure} {result.best:.4g} on {run.val}, after {result.step:,} steps in {result.seconds:.0f} s"
    )
    common.show({**asdict(result), "out": str(run.out)}, f"{outcome}\nrun {run.out}: the same command resumes it")


app = verb(fit, SHARED, FitParameters)
