"""`relabel eval`."""

from __future__ import annotations

from relabel.core.tables import Table, text
from relabel.stages.training import check_labels
from relabel_cli.options import SharedOptions, verb
from relabel_cli.trainer import SHARED, EvalParameters, parse


def eval(common: SharedOptions) -> None:
    """Compute every metric of a trained model."""
    parsed = parse(EvalParameters, common)
    check_labels(parsed.captions, (*parsed.lookup, *parsed.image_labels), common.runtime())
    from relabel_train.reference.evaluate import evaluate

    found = evaluate(parsed, common.device, common.runtime().progress.note)
    reports = {"Retrieval": found.retrieval} | {f"Against the label {k}": v for k, v in found.graded.items()}
    tables = []
    for title, report in reports.items():
        header, *rows = report.cells()
        size = f"{report.images:,} images, {report.captions:,} captions"
        tables.append(text(Table(f"{title}: {size}", header, tuple(rows))))
    for label, figures in found.image_figures.items():
        cells = tuple((name, *(f"{of[name]:.4f}" for of in figures.values())) for name in figures["model"])
        tables.append(text(Table(f"Image-image retrieval by label distances of {label}", ("metric", *figures), cells)))
    common.show(found.to_json(), "\n\n".join([*([found.proxy] if found.proxy else []), *tables, *found.notes]))


app = verb(eval, SHARED, EvalParameters)
