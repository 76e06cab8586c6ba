"""A page of a few captions, with every part filled, for the tests of its HTML and of its behaviour in a browser."""

from __future__ import annotations

from typing import Any

import numpy as np

from relabel.core.tables import Table
from relabel.corpus.table import Caption, Corpus
from relabel.datasets.cxc import METHODS, HumanScores, Task
from relabel.judge.calibration import Reliability
from relabel.judge.cxc import ScoredPairs
from relabel.judge.cxc_figures import PairScores
from relabel.judge.report import JudgedLabel
from relabel.page.captions import Nearest, choose_captions
from relabel.page.charts import ChartPairs, diagram, distribution, headline
from relabel.page.images import Images
from relabel.page.render import render_page
from relabel_train.scoring.calibration import CalibrationCurve

HOSTILE = "a </script><script>window.stolen = 1</script> <b>dog</b> &amp; {{script}} ${captions} <!-- \"cat\" 'rat'"
LABELS = ("same_image", "cider", "sbert")
CURVE = CalibrationCurve((0.0, 1.0), (1.0, 4.5), (0.0, 0.9), own=(4.9, 0.99))
RELIABILITY = Reliability(CURVE, 0.05, 0.2, (0.1, 0.5, 0.8), (0.15, 0.4, 0.85), (30, 20, 10), (10, 0.8, 0.85))


def texts(count: int) -> list[str]:
    """Return captions of distinct words, the hostile one among them."""
    animals, things = ("dog", "cat", "horse", "zebra", "sheep"), ("surfboard", "sofa", "bus", "bench")
    lines = [f"a {animals[i % 5]} on a {things[i % 4]} number {i}" for i in range(count)]
    lines[7] = HOSTILE
    return lines


def nearest_of(count: int) -> dict[str, Nearest]:
    """Return nearest captions of two labels; under the second one, the last caption has none."""
    rng = np.random.default_rng(0)
    order = np.array([np.delete(np.arange(count), i)[rng.permutation(count - 1)[:4]] for i in range(count)])
    reference = np.repeat(np.arange(count), 4)
    cider = Nearest(reference, order.ravel(), np.sort(rng.random((count, 4)) * 10, axis=1)[:, ::-1].ravel().round(3))
    scores = np.sort(rng.uniform(-1, 1, (count, 4)), axis=1)[:, ::-1].ravel().round(3)
    sbert = Nearest(reference[:-4], order[:, ::-1].ravel()[:-4], scores[:-4], reranked=True)
    return {"cider": cider, "sbert": sbert}


def corpus_of(count: int) -> Corpus:
    """Return the corpus of these captions, five to an image."""
    named = (Caption(f"coco:{i:03d}", f"coco:9{i // 5:03d}", "test", text) for i, text in enumerate(texts(count)))
    return Corpus.from_captions(named)


def scored_pairs(corpus: Corpus, task: Task, count: int = 40) -> list[PairScores]:
    """Return pairs of a task as three labels score them; every third is of one image, which same_image knows alone."""
    rng = np.random.default_rng(0)
    left, own = corpus.caption_ids[:count], [i % 3 == 0 for i in range(count)]
    other = corpus.image_ids if task == "sits" else corpus.caption_ids
    right = [other[i // 5] for i in range(count)]
    methods = METHODS[task]
    human = HumanScores(task, "test", left, right, rng.random(count).round(2) * 5, [methods[not one] for one in own])
    labels = []
    for label in LABELS:
        relevance = np.array(own, np.float64) if label == "same_image" else rng.random(count)
        pairs = ScoredPairs(human, relevance, [None] * count, np.arange(count, dtype=np.int32))
        labels.append(PairScores(JudgedLabel(label=label, params={"source": label}), "test", {task: pairs}))
    return labels


def example_data(count: int = 60) -> dict[str, Any]:
    """Return the data of a page of three labels."""
    corpus = corpus_of(count)
    page = choose_captions(corpus, range(count))
    colours = {"same_image": "var(--baseline)", "cider": "var(--label-0)", "sbert": "var(--label-1)"}
    kinds = ("same_image", "neighbours", "random")
    rng = np.random.default_rng(1)
    records = [
        {"label": label, "task": "sits", "subset": subset, "pearson": r, "low": r and r - 0.1, "high": r and r + 0.1}
        for label, subset, r in (
            ("same_image", "all", 0.7), ("same_image", "c2i_intrasim", None), ("sbert", "all", 0.88),
            ("cider", "c2i_intrasim", 0.5),
        )
    ]  # fmt: skip
    return {
        "labels": {label: [colour, f"about {label}"] for label, colour in colours.items()},
        "captions": [" ".join(text.split()) for text in texts(count)],
        "ids": corpus.caption_ids,
        "starts": page.starts,
        "headline": {"": headline(records, colours)},
        "reliability": {label: diagram(RELIABILITY, colours[label]) for label in LABELS[1:]},
        "judged": {task: ChartPairs(scored_pairs(corpus, task), task, page).data(colours) for task in ("sits", "sts")},
        "distributions": {
            label: distribution({kind: rng.random(50) for kind in kinds}, colours[label]) for label in LABELS[1:]
        },
        "searched": {label: one._asdict() for label, one in nearest_of(count).items()},
    }


ROWS = (("sbert", "0.88"), ("cider", "<b>0.74</b>"))
TABLES = (
    Table("Agreement <of> labels", ("label", "all"), ROWS, ("A note & more.",)),
    Table("Another table", ("label", "value"), (("sbert", "1"),)),
)


PAIRS = Table(
    "2 captions describe another image",
    ("sbert", "image", "caption of another image"),
    (("0.953", "a dog on a sofa", HOSTILE), ("0.912", "a zebra " * 40, "a horse")),
    (),
    (("", "coco:9001", "coco:9002"), ("", "coco:9003", "coco:9004")),
)


def example_page(count: int = 60, images: Images | None = None) -> str:
    """Return a page of three labels, with images if there are addresses of them."""
    corpus, data = corpus_of(count), example_data(count)
    addresses = {name: images.address(name.partition(":")[2]) for name in corpus.image_ids} if images else {}
    data["images"] = list(addresses.values())
    warnings = ["coco: 3 captions were left out", "sbert: does not know all words of 2 captions"]
    return render_page("coco, test", [f"{count} captions"], TABLES, data, PAIRS, warnings, addresses, images)
