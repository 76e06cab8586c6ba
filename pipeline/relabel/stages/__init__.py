"""The stages as plain functions, one file each: fetch, ingest, tune, encode, neighbours, judge, export.

`relabel.stages.run` runs them in order. Each stage is idempotent: finished work is found by its fingerprint and is not
repeated.
"""

from relabel.stages.encode import encode, encoded, failed_rows, open_label
from relabel.stages.export_lookup import export_lookup
from relabel.stages.export_plan import estimate_plan, export_plan
from relabel.stages.fetch import fetch
from relabel.stages.ingest import ingest, prepare_corpus
from relabel.stages.job import Job, note, status
from relabel.stages.judge import judge, judgement_folder
from relabel.stages.neighbours import neighbours, searchable
from relabel.stages.prepare import prepare, prepare_encoding
from relabel.stages.project import Project
from relabel.stages.tune import (
    models,
    needs_word2vec,
    tune_bert_sts,
    tune_cbow,
    tune_sbert,
    word2vec_is_current,
)
from relabel.stages.tune_fuse import tune_fuse

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
    "ingest",
    "judge",
    "judgement_folder",
    "models",
    "needs_word2vec",
    "neighbours",
    "note",
    "open_label",
    "prepare",
    "prepare_corpus",
    "prepare_encoding",
    "searchable",
    "status",
    "tune_bert_sts",
    "tune_cbow",
    "tune_fuse",
    "tune_sbert",
    "word2vec_is_current",
]
