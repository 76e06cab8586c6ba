"""The stages as plain functions: fetch, ingest, tune, encode, neighbours, judge, export.

A function with the name of an artefact, such as `encoding`, prepares its `Job`, and ``job.run()`` builds it. Finished
work is recognised by its fingerprint and is not repeated. `relabel.stages.run` runs all stages in order.
"""

from relabel.stages.best import fuse_model, tune_best
from relabel.stages.corpus import label_splits, open_corpus, training_split
from relabel.stages.encode import (
    available_labels,
    build_encoding,
    build_inputs,
    check_label_names,
    encoding,
    find_failed_rows,
    open_label,
)
from relabel.stages.export import format_export, lookup_export, neighbours_export
from relabel.stages.export_batches import batches_export
from relabel.stages.export_wds import wds_export
from relabel.stages.ingest import fetch_and_ingest, ingestion
from relabel.stages.job import Job
from relabel.stages.judged import figures, judgement, ranking
from relabel.stages.neighbours import neighbour_table
from relabel.stages.session import Session, datasets_in
from relabel.stages.tune import bert_sts_model, sbert_model, word2vec_model
