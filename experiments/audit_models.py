"""`python -m experiments.audit_models`: the order of models by figures of `relabel audit`, and by ECCV Caption.

No model sees an image. Each image is represented by one of its captions, which is held out (see `proxy_features`). The
models rank all other captions: labels that compare captions, sums of two of them, vectors of labels that are cut to
their first components, and trainings of `fit_table`. Needs `labels/DATASET/proxy`, encodings of `LABELS` and neighbours
of `AUDITORS` for test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau

from experiments.proxy_features import proxy_folder, remaining_project
from relabel.core.tables import Table, text
from relabel.corpus import References
from relabel.datasets import locate
from relabel.judge.audit import compare_positives, corrected_positives
from relabel.judge.eccv import FILES
from relabel.judge.runs import Run
from relabel.stages import Session, open_corpus
from relabel.stages.encode import open_label
from relabel.stages.false_negatives import find_false_negatives
from relabel_cli.main import main
from relabel_cli.options import COMPUTE, SharedOptions, verb
from relabel_train.metrics import (
    Positives,
    average_precision_at_r,
    open_scores,
    own_positives,
    rank_positives,
    read_positives,
)
from relabel_train.metrics.scores import Scores
from relabel_train.reference.data import open_corpus_features, read_split
from relabel_train.reference.evaluate import score
from relabel_train.reference.runs import load_model

LABELS: dict[str, Sequence[int]] = {
    "sbert": (24, 48, 96),
    "word2vec": (10, 25, 50),
    "cbow": (),
    "cider": (),
    "cider_lower_split": (),
}
"""Labels that rank captions, and numbers of components."""
AUDITORS = ("sbert", "cider_lower_split")
"""Labels that find false negatives."""
PEOPLE = "ECCV mAP@R"
Record = dict[str, Any]


def models(session: Session, kept: NDArray[np.bool_], held_out: NDArray[np.int32]) -> Iterator[tuple[str, Scores]]:
    """Yield the scores of models by name: images of test x its captions that are not held out."""
    captions = np.flatnonzero(kept).astype(np.int32) + open_corpus(session).split_rows("test").start
    blocks = dict[str, NDArray[np.float32]]()
    for label, widths in LABELS.items():
        relevance: Any = open_label(session, label, "test")
        blocks[label] = relevance.block(References.single(held_out), captions, "first").astype(np.float32)
        yield label, Scores.of(blocks[label])
        for width in widths:
            vectors = relevance.vectors[:, :width]
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
            sides = (vectors[relevance.positions(rows)] for rows in (held_out, captions))
            yield f"{label}, {width} components", open_scores(tuple(sides))
    for first, second in combinations(blocks, 2):
        # The standard deviation over pairs is a common unit.
        yield f"{first} + {second}", Scores.of(sum(blocks[name] / blocks[name].std() for name in (first, second)))
    blocks.clear()
    remaining = remaining_project(session)
    features = open_corpus_features(proxy_folder(session), remaining.folder("corpus"))
    split = read_split(remaining.folder("corpus"), "test", features)
    for file in remaining.folder("runs").glob("*.jsonl"):
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            for run in file.parent.glob(f"*/{record['key']}"):
                scores = score(load_model(run), split, features, torch.device("cpu"))
                yield f"{record['model']}, {record['row']}, seed {record['seed']}", Scores.of(scores)


def mean_precision(scores: Scores, positives: Positives) -> float:
    """Return mAP@R in percent, the mean of both directions."""
    values = []
    for side, direction in ((positives.i2t, "i2t"), (positives.t2i, "t2i")):
        hits = rank_positives(scores, direction, side, int(side.total.max()))[1]  # type: ignore[arg-type]
        values.append(100 * average_precision_at_r(hits, side.total).mean())
    return round(float(np.mean(values)), 2)


def orders(records: Sequence[Record]) -> list[Record]:
    """Return Kendall's tau of each figure with ECCV's, over groups of models."""
    groups = {
        "all": records,
        "without sbert": [record for record in records if "sbert" not in record["model"]],
        "trainings": [record for record in records if ", seed " in record["model"]],
    }
    found = []
    for figure in (name for name in records[0] if name not in ("model", PEOPLE)):
        taus = {}
        for group, members in groups.items():
            tau = kendalltau([one[figure] for one in members], [one[PEOPLE] for one in members]).statistic
            taus[f"{group} ({len(members)})"] = round(float(tau), 2)
        found.append({"figure": figure, **taus})
    return found


def agreement(found: Positives, people: Positives) -> Record:
    """Return precision and recall of positives in percent, over the queries that people judged."""
    record = Record()
    for direction, side, judged in (("i2t", found.i2t, people.i2t), ("t2i", found.t2i, people.t2i)):
        pairs = [{*zip(s.queries[s.owner()].tolist(), s.items.tolist(), strict=True)} for s in (side, judged)]
        queries = {*judged.queries.tolist()}
        ours, theirs = ({pair for pair in each if pair[0] in queries} for each in pairs)
        for name, each in (("precision", ours), ("recall", theirs)):
            record[f"{direction} {name}"] = round(100 * len(ours & theirs) / len(each), 1)
    return record


def command(common: SharedOptions) -> None:
    """Compare the order of models by the audit's figures with their order by ECCV Caption."""
    session = common.session()
    corpus, rows = open_corpus(session), open_corpus(session).split_rows("test")
    names = {*json.loads((proxy_folder(session) / "features.json").read_text(encoding="utf-8"))["held_out"]}
    held_out = np.array([row for row in rows if corpus.caption_ids[row] in names], np.int32)
    kept, images = ~np.isin(rows, held_out), corpus.images_of(rows)
    chosen, number = np.flatnonzero(kept), np.cumsum(kept) - 1
    owner = corpus.image[chosen + rows.start].astype(np.int64) - images.start
    i2t, t2i = (locate("eccv", FILES[direction], session.runtime.data) for direction in ("i2t", "t2i"))
    image_ids = corpus.image_ids[images.start : images.stop]
    caption_ids = corpus.caption_ids[rows.start : rows.stop]
    people = read_positives(i2t, t2i, image_ids, [caption_ids[n] for n in chosen.tolist()], without=names)
    complete = read_positives(i2t, t2i, image_ids, caption_ids)
    every = corpus.image[rows.start : rows.stop].astype(np.int64) - images.start
    found, positives = [{"positives": "COCO"} | agreement(own_positives(every, len(images)), complete)], {}
    for label in AUDITORS:
        keys = find_false_negatives(session, [label], "test").keys
        image, caption = keys // len(corpus) - images.start, keys % len(corpus) - rows.start
        scored = kept[caption]
        positives[label] = corrected_positives(image[scored], number[caption[scored]], owner)
        found.append({"positives": label} | agreement(corrected_positives(image, caption, every), complete))
    records = list[Record]()
    for name, scores in models(session, kept, held_out):
        record: Record = {"model": name}
        for label, corrected in positives.items():
            shown = compare_positives(Run.complete(scores, kept), corrected, owner, session.runtime.threads)[0]
            for figure in ("R@1", "mAP@R"):
                for kind, title in (("usual", figure), ("corrected", f"{figure} by {label}")):
                    record[title] = round(float(np.mean([f[kind] for f in shown if f["figure"] == figure])), 2)
        records.append(record | {PEOPLE: mean_precision(scores, people)})
        session.runtime.progress.note(json.dumps(records[-1]))
    records.sort(key=lambda record: -record[PEOPLE])
    parts = {"Positives against ECCV Caption, percent": found}
    parts |= {"Figures of models, percent": records, f"Kendall's tau with {PEOPLE}": orders(records)}
    tables = [Table(t, tuple(p[0]), tuple(tuple(map(str, r.values())) for r in p)) for t, p in parts.items()]
    common.show({"positives": found, "models": records, "orders": orders(records)}, "\n\n".join(map(text, tables)))


app = verb(command, COMPUTE)
if __name__ == "__main__":
    main(lambda: app)
