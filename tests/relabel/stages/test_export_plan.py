"""Contract: a plan of real captions follows its label, sampler and seed and is rebuilt for no other reason. Graded
batches contain more captions of every level than random ones.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import SILENT, Runtime
from relabel.corpus import Corpus, References
from relabel.stages import Project
from relabel_train.plan import Plan, open_plan

SETTINGS = [
    "ingest.dataset=mine",
    "ingest.format=jsonl",
    "ingest.path=captions.jsonl",
    "sources.cider.tokenizer=lower_split",
    "export.plan.batch_size=24",
    "neighbours.k=60",
]


def write_captions(coco: Corpus, images: int, split: str) -> None:
    """Write captions of COCO's first images; the last tenth of them are the val split."""
    first = coco.images([split]).start
    with Path("captions.jsonl").open("w", encoding="utf-8") as file:
        for number in range(images):
            for row in range(int(coco.indptr[first + number]), int(coco.indptr[first + number + 1])):
                line = {"caption_id": coco.caption_ids[row], "image_id": coco.image_ids[first + number]}
                line |= {"split": "val" if number >= 0.9 * images else "train", "text": coco.texts[row]}
                file.write(json.dumps(line) + "\n")


def project(*settings: str) -> Project:
    return Project(Config(**load_config(None, [*SETTINGS, *settings]).model_dump()), Runtime(threads=1))


@pytest.fixture
def small(tmp_path: Path, coco: Corpus, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return 400 images of COCO, ingested and encoded."""
    monkeypatch.chdir(tmp_path)
    write_captions(coco, 400, "test")
    project_of = project("ingest.tokenizer=none")
    stages.ingest(project_of).run()
    for label in ("same_image", "cider"):
        stages.encode(project_of, label, "train").run()
    return project_of


def plan_of(built: Project, label: str) -> tuple[Plan, dict[str, Any]]:
    job = stages.export_plan(built, label, "train")
    manifest, _ = job.run()
    return open_plan(job.out), manifest.facts


def reopened(*settings: str) -> Project:
    return project("ingest.tokenizer=none", *settings)


def test_graded_batches_hold_more_of_every_level_than_random_ones(small: Project) -> None:
    stages.neighbours(small, "cider", "train").run()
    graded, facts = plan_of(reopened("export.plan.sampler=graded", "export.plan.depth=60"), "cider")
    levels = facts["sampler"]["levels"]
    assert len(levels) == 3
    random, _ = plan_of(reopened(), "cider")
    for level in levels:
        ours, theirs = (
            np.mean([((b.relevance >= level) & ~b.same_image).sum() for b in map(plan.__getitem__, range(len(plan)))])
            for plan in (graded, random)
        )
        assert ours > 2 * theirs
    rows = np.concatenate([graded.rows(n) for n in range(len(graded))])
    assert len(set(rows.tolist())) == len(rows) == 24 * len(graded)


def test_neighbour_batches_begin_with_an_anchor_and_its_nearest(small: Project) -> None:
    stages.neighbours(small, "cider", "train").run()
    settings = ["export.plan.sampler=neighbour", "export.plan.k=3", "export.plan.batches=4", "export.plan.epochs=2"]
    plan, facts = plan_of(reopened(*settings), "cider")
    assert (len(plan), facts["neighbours"], facts["sampler"]["k"]) == (8, "cider", 3)
    relevance, corpus = stages.open_label(small, "cider", "train"), small.corpus
    rows = np.array(corpus.rows(["train"]), np.int32)
    for number in range(len(plan)):
        anchor, *nearest = plan.rows(number)[:4].tolist()
        score = relevance.block(References.single(np.array([anchor], np.int32)), rows)[0]
        expected: list[int] = []
        for row in rows[np.argsort(-score, kind="stable")].tolist():
            if corpus.image[row] not in corpus.image[[anchor, *expected]] and len(expected) < 3:
                expected.append(row)
        assert nearest == expected


def test_a_plan_is_rebuilt_only_if_its_parameters_change(small: Project) -> None:
    assert stages.export_plan(reopened(), "same_image", "train").run()[1]
    assert not stages.export_plan(reopened("export.plan.max_bytes=1GiB"), "same_image", "train").run()[1]
    assert not stages.export_plan(reopened("export.plan.k=2", "export.plan.group=3"), "same_image", "train").run()[1]
    for change in ("batch_size=20", "epochs=2", "seed=1", "batches=3", "drop_last=false", "one_caption_an_image=true"):
        changed = replace(
            reopened(f"export.plan.{change}"), runtime=Runtime(threads=1, replace=True)
        )  # as by --replace
        assert stages.export_plan(changed, "same_image", "train", "one-name").run()[1], change
    assert stages.export_plan(reopened("export.plan.pooling=paired"), "same_image", "train").run()[1]


def test_the_encoding_of_all_captions_serves_a_split(small: Project) -> None:
    stages.encode(small, "same_image", "all").run()
    notes = Mock(wraps=SILENT)
    job = stages.export_plan(replace(small, runtime=replace(small.runtime, progress=notes)), "same_image", "val")
    assert "encodings/all/same_image serves split val" in notes.note.call_args.args[0]
    job.run()
    plan = open_plan(job.out)
    rows = np.concatenate([plan.rows(n) for n in range(len(plan))])
    inside = small.corpus.rows(["val"])
    assert inside.start <= rows.min() <= rows.max() < inside.stop


def test_absurd_plans_are_refused(small: Project) -> None:
    with pytest.raises(UsageError, match="--max-bytes"):
        stages.export_plan(reopened("export.plan.epochs=5", "export.plan.max_bytes=100kB"), "cider", "train").run()


def test_missing_inputs_are_named(small: Project) -> None:
    with pytest.raises(MissingError, match=r"relabel neighbours --label cider --within train"):
        stages.export_plan(reopened("export.plan.sampler=graded"), "cider", "train").run()
    with pytest.raises(MissingError, match="relabel encode --label cider --split val"):
        stages.export_plan(small, "cider", "val").run()
    graded = ("neighbours.k=10", "export.plan.sampler=graded")
    stages.neighbours(reopened(*graded), "cider", "train").run()
    with pytest.raises(UsageError, match=r"20 neighbours per caption are needed, the table has 10.*depth"):
        stages.export_plan(reopened(*graded, "export.plan.depth=20"), "cider", "train").run()
    _, facts = plan_of(reopened(*graded), "cider")
    assert facts["sampler"]["depth"] == 10  # all available neighbours, by default
    lines = Path("captions.jsonl").read_text().replace(" a ", " one ", 1)
    Path("captions.jsonl").write_text(lines)
    stages.ingest(reopened()).run()
    stages.encode(reopened(), "same_image", "train").run()
    with pytest.raises(CheckError, match="another corpus"):
        stages.export_plan(reopened(*graded, "export.plan.neighbours=cider"), "same_image", "train").run()


@pytest.mark.java
def test_meteor_is_planned_pair_by_pair(tmp_path: Path, coco: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_captions(coco, 12, "test")
    project_of = project("ingest.tokenizer=ptb", "export.plan.batch_size=8", "export.plan.epochs=2")
    stages.ingest(project_of).run()
    stages.encode(project_of, "meteor", "train").run()
    job = stages.export_plan(project_of, "meteor", "train")
    job.run()
    plan, relevance, corpus = open_plan(job.out), stages.open_label(project_of, "meteor", "train"), project_of.corpus
    try:
        for number in range(0, len(plan), 3):
            batch = plan[number]
            sets = References.of([corpus.references([corpus.image[r]])[0] for r in batch.rows for _ in batch.rows])
            scores = relevance.pairs(sets, np.tile(batch.rows, len(batch.rows)))
            assert np.array_equal(batch.relevance.ravel(), scores.astype(np.float32))
            assert (batch.relevance[batch.same_image] > 0.9).all()
    finally:
        relevance.close()  # type: ignore[attr-defined]
