"""The functions of `import relabel`: one Python call per task, by ids and texts."""

from relabel.api.build import encode, export_label, ingest, label, load, report, run
from relabel.api.explore import false_negatives, neighbours, verify
from relabel.api.judge import correlate
from relabel.api.labels import Label
from relabel.api.scorer import Scorer, score

__all__ = ["Label", "Scorer", "correlate", "encode", "export_label", "false_negatives", "ingest", "label", "load"]
__all__ += ["neighbours", "report", "run", "score", "verify"]
