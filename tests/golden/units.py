"""What is frozen: units of values, each a function of a working folder."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.golden import hostile, today
from tests.golden.store import Values
from tests.golden.today import Folder, Skip, hashes, sample

# Every source, and its main variants.
LABELS: dict[str, dict[str, Any]] = {
    "same_image": {"source": "same_image"},
    "sbert": {"source": "sbert", "model": "sentence-transformers/all-MiniLM-L6-v2"},
    "cbow": {"source": "cbow", "vectors": "words.txt", "tokenizer": "lower_split"},
    "vectors": {"source": "precomputed", "captions": "captions.npy"},
    "clip": {"source": "precomputed", "captions": "captions.npy", "images": "images.npy", "pooling": "set"},
    "images": {"source": "precomputed", "images": "images.npy"},
    "cider": {"source": "cider"},
    "cider_lower_split": {"source": "cider", "tokenizer": "lower_split"},
    "cider_plain": {"source": "cider", "variant": "cider", "df": "corpus"},
    "spice": {"source": "spice"},
    "meteor": {"source": "meteor"},
    "bert_sts": {"source": "bert_sts", "model": "pairs", "gate": "cbow", "threshold": 0.6},
    "wmd": {"source": "wmd", "vectors": "words.txt", "tokenizer": "lower_split"},
    "fuse": {"source": "fuse", "model": "fuse"},
    "scores": {"source": "scores", "file": "scores.csv", "missing": "cbow"},
}
# Labels of the quick part.
QUICK = [label for label in LABELS if label != "meteor"]
# Labels of every kind, whose figures on CxC are frozen.
JUDGED = ("same_image", "cbow", "clip", "cider", "spice", "bert_sts", "wmd", "fuse")
QUERIES = ("a dog on a surfboard", "Two people are playing tennis.", "A red double-decker bus in front of a building")
QUERIES += ("man", "zzz qqq")
TUPLES = "spice/coco_test_tuples.parquet"
# Images of each split of the two projects of all labels; the first split is labelled.
SIZES = {"small": {"val": 40, "train": 20}, "medium": {"test": 400}}


@cache
def session(root: Path, size: str) -> Folder:
    """Return a project of all labels on some captions of COCO, with vectors, words and models."""
    captions = today.coco_captions(SIZES[size])
    folder = Folder(root / size, next(iter(SIZES[size])))
    with suppress(Skip):
        if size == "medium":
            folder.parses = _recorded_parses()
    ingest = {"dataset": "coco", "format": "jsonl", "path": "captions.jsonl", "expected": {}}
    params = {"sources": LABELS, "ingest": ingest, "judge": {"split": folder.split, "resamples": 0}}
    params |= {"neighbours": {"k": 20}}
    folder.write(captions, params)
    random = np.random.default_rng(3)
    words = sorted({w for c in captions for w in c["text"].lower().replace(".", " ").replace(",", " ").split()})
    lines = [f"{word} {' '.join(f'{x:.4f}' for x in random.normal(size=12))}" for word in words]
    (folder.path / "words.txt").write_text("\n".join(line for i, line in enumerate(lines) if i % 10) + "\n")
    today.write_vectors(folder.path, captions, random)
    pairs = [(a["image_id"], b["caption_id"]) for a in captions[::9] for b in captions[::7]]
    given = dict(zip(pairs, random.random(len(pairs)).round(4), strict=True))
    lines = ["image_id,caption_id,score", *(f"{image},{caption},{score}" for (image, caption), score in given.items())]
    (folder.path / "scores.csv").write_text("\n".join(lines) + "\n")
    today.write_cross_encoder(folder.path / "pairs")
    today.write_fuse(folder)
    return folder


def _recorded_parses() -> Callable[[str], Any]:
    """Return a function from a text to the recorded tuples of COCO's test captions; new texts have simple ones."""
    table = pq.read_table(today.mirror(TUPLES))
    texts = {c["caption_id"]: " ".join(c["text"].split()) for c in today.coco_captions({"test": 5000})}
    numbers = map(str, table["caption_id"].to_pylist())
    tuples = {texts[n]: found for n, found in zip(numbers, table["tuples_raw"].to_pylist(), strict=True) if n in texts}
    return lambda text: tuples.get(" ".join(text.split()), today.words_as_tuples(text))


def corpus_values(table: Any) -> Values:
    """Return a sample of a corpus, its size and the types of its columns."""
    rows = sample(len(table), 2000)
    values: Values = {"rows": len(table), "types": {f.name: str(f.type) for f in table.schema}}
    for name in table.column_names:
        column = table[name].take(rows).to_pylist()
        values[name] = hashes(column) if isinstance(column[0], str) else np.array(column)
    return values


def label_values(folder: Folder, name: str, pairs: int, sampled: int, searched: bool = True) -> Values:
    """Return everything that a label answers: encoding, pairs, queries, neighbours and lookup blocks."""
    if name == "spice" and folder.split == "test":
        today.mirror(TUPLES)
    opened = folder.label(name)
    values: Values = {f"encoding/{key}": value for key, value in folder.encoding(name, sampled).items()}
    random = np.random.default_rng(1)
    left, right = random.integers(opened.images[-1] + 1, size=pairs), random.integers(len(opened.images), size=pairs)
    left[::5] = opened.images[right[::5]]  # a fifth of the pairs are an image's own captions
    if name == "meteor":
        left, right = left[::4], right[::4]
    for pooling in opened.poolings:
        scores = opened.pairs(left, right, pooling)
        values[f"pairs/{pooling}"] = scores if name in EXACT else scores.astype(np.float32)
    asked = sample(len(opened.images), 500)
    for i, text in enumerate(QUERIES if opened.scores_texts else ()):
        values[f"query/{i}"] = opened.query(text, asked)
    for of in ("captions", "images"):
        table = folder.neighbours(name, of, 20) if searched else None
        if table is not None:
            some = sample(len(table["ids"]), sampled)
            values |= {f"neighbours/{of}/{key}": array[some] for key, array in table.items()}
    lookup = folder.lookup(name)
    if lookup is not None:
        values |= lookup_values(lookup)
    return values


def lookup_values(lookup: Any) -> Values:
    """Return a sample of 50 blocks of 128 captions, and the sum of each."""
    random = np.random.default_rng(2)
    cells, sums, same = [], [], []
    for i in range(50):
        rows = lookup.rows.start + random.permutation(len(lookup))[:128]
        block = lookup.block(rows, pooling="first" if i % 2 else None, missing="nan")
        cells.append(block.ravel()[random.integers(block.size, size=200)])
        sums.append(block.sum(dtype=np.float64))
        same.append(lookup.same_image(rows).sum())
    return {"lookup/cells": np.stack(cells), "lookup/sums": np.array(sums), "lookup/same_image": np.array(same)}


# Labels whose scores do not depend on the processor: kept in float64.
EXACT = ("same_image", "cider", "cider_lower_split", "cider_plain", "spice", "meteor")

# Every format but precomputed batches and candidates: the verb's name, a label, and options.
EXPORTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "hf": ("hf", "vectors", ()),
    "hf of features": ("hf", "cider", ()),
    "pairs": ("pairs", "cider", ("--count", "300")),
    "tuples": ("tuples", "cider", ("--count", "150", "--negatives", "3")),
    "trec": ("trec", "cider", ()),
    "trec of images": ("trec", "cider_plain", ("--queries", "images")),
    "scan": ("scan", "cider", ()),
    "wds": ("wds", "clip", ("--captions-per-shard", "500")),
    "wds of samples": ("wds", "vectors", ("--layout", "samples", "-k", "3")),
    "neighbours": ("neighbours", "cider", ()),
    "neighbours of images": ("neighbours", "cider", ("--queries", "images")),
}
FOUR = ("--batches-per-epoch", "4")
# Every sampler: a label and options.
PLANS: dict[str, tuple[str, tuple[str, ...]]] = {
    "random": ("cider", ("--batch-size", "32", "--epochs", "2", *FOUR)),
    "neighbour": ("cider_plain", ("--sampler", "neighbour", "--batch-size", "20", *FOUR)),
    "graded": ("wmd", ("--sampler", "graded", "--neighbours", "cider", "--batch-size", "32", *FOUR)),
}


def export_values(folder: Folder) -> Values:
    """Return the content of every export format."""
    folder.label("wmd")
    for label in ("cider", "cider_plain", "vectors", "clip"):
        folder.label(label)
        for of in ("captions", "images"):
            folder.neighbours(label, of, 20)
        folder.lookup(label)
    values: Values = {}
    for name, (kind, label, options) in EXPORTS.items():
        # Neighbours of images are exported for a split that starts at row 0 alone.
        if name == "trec of images" and folder.split != "test":
            continue
        values |= {f"{name}/{key}": value for key, value in folder.export(kind, label, *options).items()}
    for name, (label, options) in PLANS.items():
        values |= {f"batches {name}/{key}": value for key, value in folder.plan(name, label, *options).items()}
    return values


def figure_values(folder: Folder) -> Values:
    """Return the figures of labels on CxC, and of one on a file with every statistic."""
    values: Values = {f"cxc/{label}": found for label, found in folder.figures(JUDGED, "cxc").items()}
    captions = folder.corpus.slice(0, 60).to_pylist()
    human = np.random.default_rng(5).integers(0, 6, 59)
    pairs = [
        {"references": [a["text"]], "candidate": b["text"], "human": int(h)}
        for a, b, h in zip(captions, captions[1:], human, strict=False)
    ]
    (folder.path / "judged.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    for statistic in ("pearson", "spearman", "tau_b", "tau_c"):
        given = ("judged.jsonl", "--statistic", statistic)
        values[f"file/{statistic}"] = folder.figures(["cider_lower_split"], *given)
    return values


def score_values(_: Path) -> Values:
    """Return scores of texts of no corpus, with documents and without, by every source that needs no other file."""
    import relabel

    references, captions = ["a dog runs on the grass", "A dog is running."], ["a dog on grass", "two cats", "A dog"]
    documents = [["a cat sits"], ["a dog barks", "the dog"], ["two men on a bench"]]
    values: Values = {}
    for source, more in {"sbert": {}, "cider": {"tokenizer": "lower_split"}}.items():
        values[source] = relabel.score(references, captions, source, **more)
    values["documents"] = relabel.score(references, captions, "cider", documents=documents, tokenizer="lower_split")
    return values


def loss_values(_: Path) -> Values:
    """Return value and gradient of every loss in float64, on a batch with tied scores, labels and siblings."""
    import torch

    random = np.random.default_rng(4)
    size = 12
    scores = np.where(random.random((size, size)) < 0.3, 0.25, random.uniform(-1, 1, (size, size)))
    relevance = np.where(random.random((size, size)) < 0.5, random.integers(-20, 20, (size, size)) / 20, scores / 2)
    np.fill_diagonal(relevance, 1)
    same = np.eye(size, dtype=bool)
    same[2, 5] = same[5, 2] = True
    vectors = random.normal(size=(size, 6))
    distances = random.integers(0, 8, (size, size)) / 4
    np.fill_diagonal(distances, 0)
    values: Values = {}
    inputs = {"embeddings": (vectors, distances), "cosine": (scores, relevance), "unit": (scores, abs(relevance))}
    for name, loss, reads in today.losses():
        torch.manual_seed(0)
        leaf = torch.tensor(inputs[reads][0], requires_grad=True)
        value = loss(leaf, torch.tensor(inputs[reads][1]), torch.tensor(same))
        value.backward()
        values |= {f"{name}/value": np.array(value.item()), f"{name}/gradient": leaf.grad.numpy()}
    return values


def metric_values(_: Path) -> Values:
    """Return every metric of a matrix of scores with ties, with labels, folds and positives."""
    random = np.random.default_rng(6)
    images, captions = 40, 200
    scores = random.integers(-6, 9, (images, captions)) / 8 + random.random((images, captions)).round(2)
    labels = np.clip(random.integers(-4, 9, (images, captions)), 0, None) / 8
    image = np.repeat(np.arange(images), 5)[random.permutation(captions)]
    found = [np.flatnonzero(row > 0.7) for row in random.random((images, captions))]
    return {ties: today.retrieval_figures(scores, image, labels, found, ties) for ties in ("pessimistic", "row")}


def fit_values(folder: Folder) -> Values:
    """Return the losses of 20 steps of each model, and the metrics of the trained model."""
    for label in ("cider", "clip"):
        folder.label(label)
        folder.lookup(label)
    corpus = folder.corpus.filter(pc.equal(folder.corpus["split"], folder.split))
    images = corpus["image_id"].unique().to_pylist()
    data = folder.path / "features"
    data.mkdir()
    regions = np.random.default_rng(8).normal(size=(len(images), 5, 12))
    np.save(data / f"{folder.split}_ims.npy", regions.astype(np.float32))
    (data / f"{folder.split}_ids.txt").write_text("".join(f"{image.partition(':')[2]}\n" for image in images))
    values: Values = {}
    for name, (label, options) in FITS.items():
        found = folder.fit(name, Path("features"), label, *options)
        values |= {f"{name}/{key}": value[:20] if key != "metrics" else value for key, value in found.items()}
    return values


# Every model: label and options of a run.
FITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "vsepp": ("clip", ("--loss", "bcls")),
    "vse_inf": (
        "cider",
        ("--model", "vse_inf", "--set", "loss=[{name: triplet}, {name: ladder, factor: 0.5}]", "--scale", "10"),
    ),
    "log_ratio": (
        "clip",
        ("--loss", "log_ratio", *(f"--set=loss.{x}" for x in ("anchors=0", "triplet=1", "unit_embeddings=true"))),
    ),
    "sgr": ("clip", ("--model", "sgr", "--loss", "kendall")),
    "saf": ("cider", ("--model", "saf", "--loss", "soft_target", "--scale", "10", "--set", "triplet_epochs=1")),
}


def hostile_values(root: Path) -> Values:
    """Return exit code and name at fault of hostile files."""
    folder = Folder(root / "hostile")
    folder.write([], {"ingest": {"dataset": "mine"}})
    return dict(hostile.run_all(folder.relabel, folder.path))


GLOVE = "vectors/glove.6B.100d.captions-vocabulary.txt.gz"
# Labels of COCO's test captions; tests/examples has the figures of sbert and word2vec, which take minutes.
FULL = ("same_image", "cider", "cider_lower_split", "glove", "fuse")
# Labels of the small captions alone, for their time.
SLOW = ("sbert", "bert_sts")


@cache
def full_project(root: Path) -> Folder:
    """Return the project of all captions of COCO; a fuse is fitted to human scores of val."""
    folder = Folder(root / "full")
    labels = {name: LABELS[name] for name in FULL[:3]}
    with suppress(Skip):
        labels["glove"] = {"source": "cbow", "vectors": str(today.mirror(GLOVE))}
        labels["fuse"] = {"source": "fuse", "model": "fuse"}
    tune = {"fuse": {"parts": ["glove", "cider"], "free_parts": ["glove", "cider"]}}
    folder.write([], {"sources": labels, "judge": {"resamples": 0}, "tune": tune})
    folder.done("fetch", "coco-captions")
    folder.corpus  # noqa: B018
    return folder


def full_values(folder: Folder, label: str) -> Values:
    """Return what a label of COCO's test captions answers, and its figures on CxC and ECCV Caption."""
    if label in ("glove", "fuse"):
        today.mirror(GLOVE)
    if label == "fuse":
        folder.done("tune", "fuse", "--out", "fuse")
    # A search of all pairs of a fuse takes minutes; the medium captions have one.
    values = label_values(folder, label, 20_000, 100, searched=label != "fuse")
    judged_by = ("cxc",) if label == "fuse" else ("cxc", "eccv")
    return values | {f"figures/{on}": folder.figures([label], on)[label] for on in judged_by}


# Evaluation sets of texts.
SETS = ("stsb", "sick", "flickr8k-expert", "vsts", "pascal-50s", "sugarcrepe-pp")


def set_figures(folder: Folder, label: str) -> Values:
    """Return the figures of a label on evaluation sets of texts."""
    today.mirror("judged")
    for name in SETS:
        folder.done("fetch", name.removesuffix("-expert"))
    return {name: folder.figures([label], name)[label] for name in SETS}


def flickr30k_values(root: Path) -> Values:
    """Return the content of Flickr30K."""
    folder = Folder(root / "flickr30k")
    path = today.mirror("flickr30k/dataset_flickr30k.json.gz")
    params = {"dataset": "coco", "format": "karpathy", "path": str(path), "expected": {}}
    folder.write([], {"ingest": params})
    return corpus_values(folder.corpus)


Unit = Callable[[Path], Values]


def all_units() -> dict[str, tuple[bool, Unit]]:
    """Return every unit by name: whether it belongs to the quick part, and its function of the working folder."""
    units: dict[str, tuple[bool, Unit]] = {
        "losses": (True, loss_values),
        "metrics": (True, metric_values),
        "scores": (True, score_values),
        "hostile": (True, hostile_values),
        "flickr30k": (False, flickr30k_values),
    }
    projects: dict[str, Callable[[Path], Folder]] = {size: partial(session, size=size) for size in SIZES}
    projects["full"] = full_project

    def add(name: str, quick: bool, values: Callable[..., Values], *more: Any) -> None:
        def unit(root: Path) -> Values:
            folder = projects[name.partition("/")[0]](root)
            # Stages of a large process collect garbage after their work: once per command over all that torch imports.
            gc.collect()
            gc.freeze()
            with folder.inside():
                return values(folder, *more)

        units[name] = (quick, unit)

    for name in projects:
        add(f"{name}/corpus", name == "small", lambda folder: corpus_values(folder.corpus))
    for label in QUICK:
        add(f"small/{label}", True, label_values, label, 2000, 50)
    for label in (label for label in LABELS if label not in (*FULL, *SLOW) or label == "fuse"):
        add(f"medium/{label}", False, label_values, label, 20_000, 100)
    add("small/exports", True, export_values)
    add("medium/exports", False, export_values)
    add("small/figures", True, figure_values)
    add("small/fit", True, fit_values)
    for label in FULL:
        add(f"full/{label}", False, full_values, label)
    for label in ("cider_lower_split", "glove"):
        add(f"full/sets/{label}", False, set_figures, label)
    return units
