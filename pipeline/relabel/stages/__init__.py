"""The stages as plain functions: fetch, ingest, tune, encode, neighbours, judge, export.

`relabel.stages.run` runs them in order. Each stage is idempotent: finished work is recognized by its fingerprint and is
not repeated.
"""

from relabel.stages.best import tune_best, tune_fuse
from relabel.stages.encode import build_encoding, build_inputs, encode, find_failed_rows, open_label
from relabel.stages.export import export, export_lookup, export_neighbours
from relabel.stages.export_batches import export_batches
from relabel.stages.export_wds import export_wds
from relabel.stages.ingest import fetch_and_ingest, ingest
from relabel.stages.job import Job
from relabel.stages.judged import figures, judge, ranking
from relabel.stages.neighbours import neighbours
from relabel.stages.session import Session, only_dataset
from relabel.stages.tune import tune_bert_sts, tune_sbert, tune_word2vec
