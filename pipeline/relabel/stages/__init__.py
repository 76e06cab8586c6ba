"""The stages as plain functions, one file each: fetch, ingest, tune, encode, neighbours, judge, export.

`relabel.run` walks them in order. Each is idempotent: finished work is found by its fingerprint and not repeated.
"""

from relabel.stages.captions import fetch, ingest
from relabel.stages.encoding import encode, encoded, failed_rows, open_label
from relabel.stages.exporting import export_lookup
from relabel.stages.fitting import fit_table
from relabel.stages.fusing import tune_fuse
from relabel.stages.job import Job, note, status
from relabel.stages.judging import judge
from relabel.stages.label import prepare, prepare_encoding
from relabel.stages.planning import estimate_plan, export_plan
from relabel.stages.project import Project
from relabel.stages.proxying import left_project, proxy_features
from relabel.stages.searching import neighbours, searchable
from relabel.stages.tuning import models, needs_cross_encoder, needs_word2vec, tune_bert_sts, tune_cbow, tune_sbert

__all__ = [
    "Job",
    "Project",
    "encode",
    "encoded",
    "estimate_plan",
    "export_lookup",
    "export_plan",
    "failed_rows",
    "fetch",
    "fit_table",
    "ingest",
    "judge",
    "left_project",
    "models",
    "needs_cross_encoder",
    "needs_word2vec",
    "neighbours",
    "note",
    "open_label",
    "prepare",
    "prepare_encoding",
    "proxy_features",
    "searchable",
    "status",
    "tune_bert_sts",
    "tune_cbow",
    "tune_fuse",
    "tune_sbert",
]
