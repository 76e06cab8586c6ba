"""Parameters of small labels, a changed value of each, and those whose value changes no artefact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relabel.sources import SOURCES

TEXTS = ("a dog", "the dog runs", "a cat", "two cats sit", "a red bus", "buses", "a man", "men walk", "grass", "sky")


SETTINGS = [
    "ingest={format: jsonl, path: captions.jsonl, namespace: coco, expected: {}}",
    "judge.gate=near",
]


SOURCE_SETTINGS: dict[str, dict[str, Any]] = {
    "same_image": {},
    "cbow": {"vectors": "words.txt"},
    "cider": {},
    "spice": {},
    "meteor": {},
    "sbert": {},
    "wmd": {"vectors": "words.txt"},
    "near": {"source": "cbow", "vectors": "words.txt"},
    "precomputed": {"captions": "given.npy", "images": "images.npy", "pooling": "max"},
    "fuse": {"model": "fuse", "gate": "near"},
    "scores": {"file": "given.csv", "missing": "near"},
    "bert_sts": {"gate": "near", "model": "one"},
    "ladder": {"source": "cbow", "vectors": "words.txt", "weighting": "ladder"},
}


VALUES: dict[tuple[str, str], list[Any]] = {
    ("ingest", "dataset"): ["mine"],
    ("ingest", "namespace"): ["mine"],
    ("ingest", "format"): ["img2dataset"],
    ("ingest", "path"): [Path("others.jsonl")],
    ("ingest", "caption_id_column"): ["other"],
    ("ingest", "image_id_column"): ["other"],
    ("ingest", "text_column"): ["other"],
    ("ingest", "split_column"): ["other"],
    ("ingest", "in_split"): ["val"],
    ("ingest", "columns"): [("caption_id", "image_id", "split", "text", "other")],
    ("ingest", "delimiter"): [";"],
    ("ingest", "ids"): ["position"],
    ("ingest", "captions_per_image"): [2],
    ("ingest", "expected"): [{"all": {"captions": 10}}],
    ("tune.cbow", "splits"): [("train", "val")],
    ("neighbours", "index"): ["Flat"],
    ("neighbours", "candidates"): ["val"],
    ("neighbours", "split"): ["all"],
    ("judge", "gate"): ["cbow", None],
    ("judge", "tasks"): [("sits",)],
    ("export.candidates", "cxc"): [("sits",)],
    ("export", "labels"): [("cider",)],
    ("export.batches", "pooling"): ["mean"],
    ("export.batches", "neighbours"): ["cider"],
    ("export.batches", "batches_per_epoch"): [1],
    ("export.batches", "anchors"): [3],
    ("export.batches", "depth"): [2],
    ("export.batches", "levels"): [(0.5,)],
    ("export.batches", "quantiles"): [(0.5,)],
    ("export.batches", "max_bytes"): ["1GiB"],
    ("export.batches", "batch_size"): [3],
    ("export.hf", "licence"): ["CC0 1.0"],
    ("export.trec", "levels"): [(0.5,)],
    ("export.trec", "quantiles"): [(0.5,)],
    ("export.scan", "captions_per_image"): [1],
    ("export.scan", "max_bytes"): ["8GiB"],
    ("export.wds", "shards"): ["other_shards"],
    ("export.wds", "join"): ["id"],
    ("export.wds", "captions_per_shard"): [3],
    ("export.tuples", "negatives"): [2],
    ("export.faiss", "index"): ["HNSW8"],
    ("sources.cbow", "vectors"): ["others.txt"],
    ("sources.cbow", "tagger"): ["en_core_web_sm"],
    ("sources.wmd", "vectors"): ["others.txt"],
    ("sources.wmd", "stop_words"): ["none"],
    ("tune.bert_sts", "base"): ["another"],
    ("tune.fuse", "parts"): [("cider",)],
    ("tune.fuse", "free_parts"): [("sbert",)],
    ("tune.fuse", "cap"): [0.5],
    ("tune.sbert", "base"): ["another"],
    ("tune.sbert", "revision"): ["main"],
    ("tune.sbert", "folds"): [3],
    ("tune.sbert", "sis"): [0.5],
    ("tune.sbert", "extra_datasets"): [("sick",)],
    ("sources.fuse", "model"): ["fuse2"],
    ("sources.fuse", "gate"): ["cbow", None],
    ("sources.scores", "file"): ["given2.csv"],
    ("sources.scores", "bounds"): [(0.0, 2.0)],
    ("sources.scores", "missing"): ["refuse", 0.5],
    ("sources.precomputed", "captions"): ["given2.npy"],
    ("sources.precomputed", "caption_ids"): ["given2.ids.txt"],
    ("sources.precomputed", "images"): ["images2.npy"],
    ("sources.precomputed", "image_ids"): ["images2.ids.txt"],
    ("sources.precomputed", "tensor"): ["text"],
    ("tune.bert_sts", "revision"): ["main"],
    ("sources.bert_sts", "model"): ["another"],
    ("sources.bert_sts", "revision"): ["main"],
    ("sources.bert_sts", "images"): ["{id}.jpg"],
    ("sources.bert_sts", "gate"): ["cbow", None],
    ("sources.bert_sts", "output"): ["raw"],
    ("sources.bert_sts", "scale"): [2.0],
    ("sources.bert_sts", "max_length"): [20],
    ("sources.bert_sts", "max_pairs"): [5],
    ("sources.meteor", "heap"): ["3G"],
    ("sources.spice", "heap"): ["3G"],
    ("sources.meteor", "processes"): [2],
    ("sources.sbert", "model"): ["another"],
    ("sources.sbert", "revision"): ["main"],
    ("sources.sbert", "prompt"): ["caption: "],
    ("sources.sbert", "max_length"): [20],
}
"""Changed values where the type alone does not tell one."""


ONE_VALUE = "there is one value"


SAME: dict[tuple[str, str], str] = {(f"sources.{source}", "source"): ONE_VALUE for source in SOURCES} | {
    ("ingest", "expected"): "refuses a corpus, changes none",
    ("ingest", "dataset"): "a name; ids take the namespace, which is the dataset's where none is given",
    ("sources.meteor", "language"): ONE_VALUE,
    ("sources.bert_sts", "max_pairs"): "refuses work, changes none",
    ("tune.bert_sts", "on"): ONE_VALUE,
    ("tune.fuse", "on"): ONE_VALUE,
    ("tune.sbert", "revision"): "which files are taken: their sha256 is an input",
    ("tune.bert_sts", "revision"): "which files are taken: their sha256 is an input",
    ("sources.spice", "heap"): "Java's memory",
    ("sources.spice", "silence"): "when the parser counts as hung",
    ("sources.meteor", "heap"): "Java's memory",
    ("sources.meteor", "processes"): "how many ask at once",
    ("sources.meteor", "silence"): "when Java counts as hung",
    ("judge", "statistic"): "of files of judgements, which no judgement of a label holds",
    ("neighbours", "split"): "which encoding is searched: its fingerprint is an input",
    ("export", "labels"): "which artefacts are made",
    ("export.batches", "max_bytes"): "refuses a plan, changes none",
    ("export.scan", "max_bytes"): "refuses a block, changes none",
    ("export.batches", "neighbours"): "whose table is read: its fingerprint is an input",
}
"""Parameters that change no value of their artefact, and why. `pooling` of a source is held apart: see below."""
