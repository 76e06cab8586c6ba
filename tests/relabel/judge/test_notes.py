"""Contract: a note below a table holds for every label in the table, or begins with the names of its labels. Notes
state whether an image is represented by its captions or a vector, and whether a caption is among its own references.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from relabel.config import Config
from relabel.core.runtime import Runtime
from relabel.datasets.cxc import METHODS, TASKS, Task
from relabel.judge import JudgeParams
from relabel.judge.compare import compare
from relabel.judge.cxc import SCHEMA
from relabel.judge.cxc_report import PairScores, baseline, cxc_report
from relabel.judge.notes import basis, first_rank_note, task_notes
from relabel.sources import source_class
from relabel.stages.judge import describe

OF_IMAGES: dict[str, Any] = {"images": "i.npy"}
OF_BOTH: dict[str, Any] = {"captions": "c.npy", "images": "i.npy", "pooling": "refs"}


def scored(label: str, source: str, image_vectors: tuple[str, ...] = (), **changed: Any) -> PairScores:
    tables = {}
    for task in TASKS:
        methods = METHODS[task]
        rows = [[f"l{i}", f"r{i}", float(i % 5), methods[i % len(methods)], i / 9, None, i] for i in range(8)]
        columns = zip(*rows, strict=True)
        tables[task] = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    params = source_class(source).spec.params(**{"source": source, **changed}).model_dump(mode="json")
    return PairScores(label=label, params=params, split="test", tables=tables, image_vectors=image_vectors)


SBERT = scored("sbert", "sbert")
CIDER = scored("cider", "cider")
SAME = scored("same_image", "same_image")
CLIP = scored("clip", "vectors", ("clip",), **OF_BOTH)
IMAGES = scored("images", "vectors", ("images",), **OF_IMAGES)
FUSED = scored("both", "fuse", ("clip",))


@pytest.mark.parametrize(
    ("label", "expected"),
    [(SBERT, "captions"), (SAME, "captions"), (CLIP, "vector"), (IMAGES, "vector alone"), (FUSED, "parts")],
)
def test_representation_of_an_image(label: PairScores, expected: str) -> None:
    assert basis(label) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"captions": "c.npy"}, False),
        (OF_BOTH, True),
        (OF_BOTH | {"pooling": "max"}, False),  # no score reads the vectors of images
        (OF_IMAGES, True),
        (OF_IMAGES | {"pooling": "refs"}, True),
    ],
)
def test_vectors_of_images_matter_only_if_they_are_compared(changed: dict[str, Any], expected: bool) -> None:
    source = source_class("vectors")
    assert source(source.spec.params(source="vectors", **changed)).spec.image_vectors == expected


def test_a_label_behind_a_gate_names_the_gate_whose_images_have_vectors() -> None:
    from relabel.stages import Project

    sources = {
        "clip": {"source": "vectors", **OF_IMAGES},
        "behind": {"source": "bert_sts", "gate": "clip"},
        "plain": {"source": "bert_sts", "gate": "sbert"},
    }
    project = Project(Config(sources=sources), Runtime())
    encoding: Any = SimpleNamespace(facts={}, runtime={})
    assert [describe(project, label, encoding).image_vectors for label in sources] == [["clip"], ["clip"], []]


@pytest.mark.parametrize("task", TASKS)
def test_labels_of_captions_share_one_note(task: Task) -> None:
    (note,) = task_notes(task, [SAME, SBERT, CIDER], include_self=True)
    assert "vector" not in note
    assert "sbert" not in note
    assert task_notes(task, [SAME], include_self=True) == [note]


def test_the_note_on_the_caption_itself_follows_the_protocol_and_the_label() -> None:
    (only_note,) = task_notes("sits", [SBERT], include_self=True)
    (left_out,) = task_notes("sits", [SBERT], include_self=False)
    assert "The judged caption itself is among the references" in only_note
    assert "The judged caption is taken out" in left_out
    for label in (CLIP, IMAGES):
        for include_self in (True, False):
            (note,) = task_notes("sits", [SAME, label], include_self=include_self)
            assert note.startswith("An image stands for itself")
            assert "judged caption" not in note
            assert "first five captions" not in note


def test_a_note_names_its_labels_where_labels_differ() -> None:
    notes = task_notes("sits", [SAME, SBERT, CLIP, CIDER, IMAGES, FUSED], include_self=True)
    assert [note.split(":")[0] for note in notes] == ["sbert, cider", "clip", "images", "both"]
    assert task_notes("sts", [SBERT, CLIP], include_self=True) == task_notes("sts", [SBERT], include_self=True)
    assert len(task_notes("sis", [SBERT, CLIP], include_self=True)) == 2


def test_random_image_vectors_have_no_published_figure_and_no_note() -> None:
    figures = [compare(scored, JudgeParams(resamples=0, draws=0)) for scored in (baseline(IMAGES), IMAGES)]
    table = cxc_report(figures).tables[0]
    rows = {row[0]: row for row in table.rows}
    assert rows["images"][-2:] == ("", "")  # the columns are those of same_image's figure
    assert not any("CLIP" in note or "BCLS" in note or "first five captions" in note for note in table.notes)


def test_the_note_on_r_at_1_if_a_caption_meets_itself() -> None:
    assert first_rank_note([SBERT, IMAGES]) == ["R@1 says little here: a caption meets itself."]
    (note,) = first_rank_note([SBERT, CLIP])
    assert note.startswith("sbert: R@1 says little")
    assert first_rank_note([CLIP]) == []
