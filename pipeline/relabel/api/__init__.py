"""The functions of `import relabel`: one Python call per task, by ids and texts."""

from relabel.api.build import encode, export_label, ingest, label, load, report, run
from relabel.api.judge import correlate
from relabel.api.labels import Label
from relabel.api.scorer import Scorer, score

__all__ = ["Label", "Scorer", "correlate", "encode", "export_label", "ingest", "label", "load", "report", "run"]
__all__ += ["score"]
