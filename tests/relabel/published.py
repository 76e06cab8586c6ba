"""Captions of 40 of COCO's val images, with published ids and drawn words, and few of their human scores."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from relabel.datasets.cxc import HumanScores, JudgedSplit, Task, human_scores

WORDS = ["a", "dog", "cat", "man", "bus", "street", "with", "red", "small", "two", "on", "in"]


@cache
def images_of_captions() -> dict[str, str]:
    """Return the image of each caption, by id."""
    human = human_scores("sits", "val")
    pairs = zip(human.left, human.right, human.method, strict=True)
    own = [(caption, image) for caption, image, method in pairs if method == "c2i_original"]
    images = set(sorted({image for _, image in own})[:40])
    return {caption: image for caption, image in own if image in images}


@cache
def few_scores(task: Task, split: JudgedSplit) -> HumanScores:
    """Return the human scores of pairs among these captions and images, and every 50th of all others."""
    human, own = human_scores(task, split), images_of_captions()
    kept = {*own, *own.values()}
    rows = [i for i in range(len(human)) if i % 50 == 0 or {human.left[i], human.right[i]} <= kept]
    left, right, method = ([side[i] for i in rows] for side in (human.left, human.right, human.method))
    return HumanScores(task, split, left, right, human.score[rows], method)


def write_captions(path: Path) -> None:
    """Write the captions as lines of JSON."""
    rng = np.random.default_rng(0)
    lines = [
        {"caption_id": c[5:], "image_id": i[5:], "split": "val", "text": " ".join(rng.choice(WORDS, 8))}
        for c, i in images_of_captions().items()
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
