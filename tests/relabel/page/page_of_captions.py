"""A page of a few captions, with every part filled, for the tests of its HTML and of its behaviour in a browser."""

from __future__ import annotations

from typing import Any

import numpy as np

from relabel.core.tables import Table
from relabel.corpus.table import Caption, Corpus
from relabel.page.captions import Nearest, choose_captions
from relabel.page.charts import distribution
from relabel.page.render import Page, PageLabel

HOSTILE = "a </script><script>window.stolen = 1</script> <b>dog</b> &amp; {{script}} ${captions} <!-- \"cat\" 'rat'"
LABELS = ("same_image", "cider", "sbert")


def texts(count: int) -> list[str]:
    """Return captions of distinct words, the hostile one among them."""
    animals, things = ("dog", "cat", "horse", "zebra", "sheep"), ("surfboard", "sofa", "bus", "bench")
    lines = [f"a {animals[i % 5]} on a {things[i % 4]} number {i}" for i in range(count)]
    lines[7] = HOSTILE
    return lines


def example_page(count: int = 60) -> Page:
    """Return a page of three labels."""
    lines = texts(count)
    captions = [Caption(f"coco:{i:03d}", f"coco:9{i // 5:03d}", "test", text) for i, text in enumerate(lines)]
    corpus = Corpus.from_captions(captions)
    page = choose_captions(corpus, range(count))
    rng = np.random.default_rng(0)
    order = np.array([np.delete(np.arange(count), i)[rng.permutation(count - 1)[:4]] for i in range(count)], np.int32)
    cider = Nearest(order, -np.sort(-rng.random((count, 4)) * 10, axis=1).astype(np.float32))
    # The last caption has no neighbours, as if it could not be encoded.
    order = order[:, ::-1].copy()
    order[-1] = count
    sbert = Nearest(order, -np.sort(-rng.uniform(-1, 1, (count, 4)), axis=1).astype(np.float32), reranked=True)
    pairs = {
        "left": list(range(40)),
        "right": [i // 5 for i in range(40)],
        "human": np.round(rng.random(40) * 5, 2).tolist(),
        "one_image": [int(i % 3 == 0) for i in range(40)],
        "relevance": {label: np.round(rng.random(40), 4).tolist() for label in LABELS},
    }
    rho: list[list[float | None]] = [
        [1.0, None, 0.2, 0.4],
        [None, 1.0, 0.7, 0.5],
        [0.2, 0.7, 1.0, 0.6],
        [0.4, 0.5, 0.6, 1.0],
    ]
    worst = pairs | {"gap": np.round(rng.uniform(-90, 90, 40), 1).tolist()}
    judged = {
        "sides": ["caption", "image"],
        "n": 1234,
        "sample": pairs,
        "worst": dict.fromkeys(LABELS, worst),
        "agreement": {"all": rho, "two_images": rho},
        "calibration": {label: [[0.1, 1.0], [0.9, 4.0]] for label in LABELS},
    }
    sts = judged | {"sides": ["caption", "caption"], "agreement": {"all": rho}}
    kinds = ("same_image", "neighbours", "random")
    drawn = [np.random.default_rng(seed) for seed, _ in enumerate(LABELS[1:])]
    charts: dict[str, Any] = {
        "headline": [
            {"label": "same_image", "subset": "all", "r": 0.7, "low": 0.6, "high": 0.8},
            {"label": "same_image", "subset": "two_images", "r": None, "low": None, "high": None},
            {"label": "sbert", "subset": "all", "r": 0.88, "low": None, "high": None},
            {"label": "cider", "subset": "two_images", "r": 0.5, "low": 0.4, "high": 0.6},
        ],
        "judged": {"sits": judged, "sts": sts},
        "distributions": {
            label: distribution({kind: one.random(50) for kind in kinds})
            for label, one in zip(LABELS[1:], drawn, strict=True)
        },
    }
    tables = (
        Table(
            "Agreement <of> labels",
            ("label", "all"),
            (("sbert", "0.88"), ("cider", "<b>0.74</b>")),
            ("A note & more.",),
        ),
        Table("Another table", ("label", "value"), (("sbert", "1"),)),
    )
    labels = (
        PageLabel("same_image", "image ids", 3, baseline=True),
        PageLabel("cider", "n-grams", 2),
        PageLabel("sbert", "all-MiniLM-L6-v2", 3),
    )
    notes = {"search": ("meteor is not searched.",), "distribution": ("Drawn with seed 0.",)}
    facts = (f"{count} captions",)
    return Page("coco", "test", facts, labels, tables, page, {"cider": cider, "sbert": sbert}, notes, charts)
