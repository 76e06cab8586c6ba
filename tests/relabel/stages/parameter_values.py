"""Parameters of small labels, a changed value of each, and those whose value changes no artefact."""

from __future__ import annotations

from typing import Any

TEXTS = ("a dog", "the dog runs", "a cat", "two cats sit", "a red bus", "buses", "a man", "men walk", "grass", "sky")
SETTINGS = ["ingest={format: jsonl, path: captions.jsonl, namespace: coco, expected: {}}", "judge.gate=near"]
SOURCE_SETTINGS: dict[str, dict[str, Any]] = {
    "same_image": {},
    "cbow": {"vectors": "words.txt"},
    "cider": {},
    "spice": {},
    "sbert": {},
    "wmd": {"vectors": "words.txt"},
    "near": {"source": "cbow", "vectors": "words.txt"},
    "meteor": {"gate": "near"},
    "precomputed": {"captions": "given.npy", "images": "images.npy", "pooling": "max"},
    "fuse": {"model": "fuse", "gate": "near"},
    "scores": {"file": "given.csv", "missing": "near"},
    "bert_sts": {"gate": "near", "threshold": 0.5, "model": "one"},
}
# Changed values of texts, of which each parameter accepts some.
STRINGS = ("other", "none", "id", ";", "cbow", "cider", "Flat", "HNSW8", "3G", "1GiB", "8GiB", "others.txt", "fuse2")
STRINGS += ("other_shards", "given2.npy", "images2.npy", "given2.csv", "{id}.jpg")
# Changed values where the type does not tell one.
VALUES: dict[tuple[str, str], list[Any]] = {
    ("ingest", "expected"): [{"all": {"captions": 10}}],
    ("ingest", "split_names"): [{"dev": "test"}],
    ("ingest", "encoding"): ["latin-1"],
    ("ingest", "records"): ["data"],
    ("ingest", "columns"): [("image_id", "text")],
}
# Parameters that change no value of their artefact, and why. `pooling` of a source is held apart.
SAME: dict[tuple[str, str], str] = {
    ("ingest", "expected"): "refuses a corpus, changes none",
    ("ingest", "dataset"): "a name; ids take the namespace, which is the dataset's where none is given",
    ("judge", "statistic"): "of files of judgements, which no judgement of a label holds",
    ("export", "labels"): "which artefacts are made",
    ("export.batches", "neighbours"): "whose table is read: its fingerprint is an input",
}
