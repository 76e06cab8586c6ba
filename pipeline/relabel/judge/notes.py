"""Notes below the tables: protocols, papers, missing pairs and models.

Most labels compare captions. A label of `vectors` with vectors of images compares an image's own vector, and a label
that is made of such a label or gated by it does both. A note that does not hold for all labels of a table begins with
the names of those for which it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from relabel.datasets.cxc import Task
from relabel.judge.published_results import UNNAMED, Published
from relabel.judge.report import JudgedLabel

BASELINE = "same_image"
"""Source that every table shows: True for captions of one image, False for all others."""
EXTERNAL = "scores"
"""Source of labels whose scores come from a file."""

Basis = Literal["captions", "vector", "vector alone", "parts"]

_STS = "Captions alone, without their images' other captions"
_ORDERS = "both orders averaged where a label is not symmetric"
_RULES: dict[Task, dict[Basis, str]] = {
    "sits": {
        "captions": "An image stands for its first five captions, pooled as the label says.",
        "vector": "An image stands for itself: its own vector is compared with the caption's.",
        "vector alone": "An image stands for itself and a caption for its image: the vectors of both are compared.",
        "parts": "An image stands for its first five captions in some parts of the label and for itself in others.",
    },
    "sts": {
        "captions": f"{_STS}; {_ORDERS}.",
        "vector": f"{_STS}; {_ORDERS}.",
        "vector alone": "A caption stands for its image: the vectors of both images are compared.",
        "parts": f"Two captions, compared as each part of the label does; {_ORDERS}.",
    },
    "sis": {
        "captions": "Every caption of one image against the first five of the other, pooled as the label says (mean "
        f"for refs); {_ORDERS}.",
        "vector": "The vector of one image against those of the first five captions of the other, their mean; both "
        "orders averaged.",
        "vector alone": "The vectors of both images.",
        "parts": f"The captions of both images, or their own vectors, as each part of the label does; {_ORDERS}.",
    },
}
_SELF = (
    "The judged caption itself is among the references of its own image, as in the papers. That lifts the figure over "
    "all pairs (CIDEr-D: 0.74, without it 0.43): read non-GT beside it."
)
_NO_SELF = "The judged caption is taken out of its own image's references; the papers keep it, so theirs are not shown."


def basis(label: JudgedLabel) -> Basis:
    """Return the basis of an image under a label: its captions, its own vector, or both in different parts."""
    if not label.image_vectors:
        return "captions"
    if label.label not in label.image_vectors:
        # The label itself compares captions, and a part of it or its gate compares images.
        return "parts"
    return "vector alone" if label.params.get("captions") is None else "vector"


def task_notes(task: Task, labels: Sequence[JudgedLabel], include_self: bool) -> list[str]:
    """Describe how the pairs of a task are scored, one note per rule.

    `labels`: all labels of a table. The baseline, which compares nothing, is left out where there are others.
    `include_self`: whether the judged caption is among the references of its own image.
    """
    rules = []
    for label in [label for label in labels if label.source != BASELINE] or labels:
        # Nothing is known of the way in which another program made its scores.
        if label.source == EXTERNAL:
            rules.append(("Scores of another program, by the ids of the pairs.", label.label))
            continue
        rule = _RULES[task][basis(label)]
        if task == "sits" and basis(label) in ("captions", "parts"):
            rule += f" {_SELF if include_self else _NO_SELF}"
        rules.append((rule, label.label))
    grouped = _grouped(rules)
    # A rule of all labels needs no names.
    return list(grouped) if len(grouped) == 1 else [f"{', '.join(names)}: {rule}" for rule, names in grouped.items()]


def first_rank_note(labels: Sequence[JudgedLabel]) -> list[str]:
    """Warn about R@1 on ECCV Caption, for labels under which a caption meets itself."""
    # An image query of references scores its own captions against themselves; an image's own vector holds none of them.
    meeting = [label.label for label in labels if basis(label) != "vector"]
    if not meeting:
        return []
    names = f"{', '.join(meeting)}: " if len(meeting) < len(labels) else ""
    return [f"{names}R@1 says little here: a caption meets itself."]


def missing_notes(missing: Iterable[tuple[str, int, Sequence[str]]]) -> list[str]:
    """Name the first pairs that could not be scored.

    `missing`: iterable of (label, count, sequence of str); count of pairs, and the first of them with the reason.
    """
    notes = _grouped(
        (f"{count:,} pairs left out: {'; '.join(first)}", label) for label, count, first in missing if count
    )
    return [
        f"{', '.join(labels)}: {note}{'; ...' if not note.endswith('...') else ''}" for note, labels in notes.items()
    ]


def checkpoint_notes(published: Iterable[tuple[str, Published | None]]) -> list[str]:
    """Name the labels, given with their published figure, whose paper does not name the model."""
    papers = _grouped((p.paper, label) for label, p in published if p and UNNAMED in p.label)
    return [
        f"{', '.join(dict.fromkeys(labels))}: {paper} does not name its checkpoint." for paper, labels in papers.items()
    ]


def model_notes(labels: Sequence[JudgedLabel]) -> list[str]:
    """Name the models and word vectors of labels."""
    models = [f"{label.label}: {label.uses}" for label in labels if label.uses]
    return [f"Models: {'; '.join(models)}."] if models else []


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Gather the labels of each note, in order of appearance."""
    labels: dict[str, list[str]] = {}
    for note, label in pairs:
        labels.setdefault(note, []).append(label)
    return labels
