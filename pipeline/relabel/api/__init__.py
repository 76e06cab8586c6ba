"""The functions of `import relabel`: one Python call per task, by ids and texts."""

from relabel.api.build import encode, export_label, ingest, label, load, report, run
from relabel.api.judge import correlate, score
from relabel.api.labels import Label

__all__ = ["Label", "correlate", "encode", "export_label", "ingest", "label", "load", "report", "run", "score"]
