"""Contract: candidates are each pair once of an image and its own captions, its nearest captions and the pairs from
which the relevance of CxC's tasks is made, with ids and texts; with a column of scores, a file
is one of the source `scores`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.export.formats import exported, with_captions

from relabel import stages
from relabel.core.errors import CheckError, MissingError
from relabel.corpus.build import Caption
from relabel.datasets.cxc import TASKS, Task, human_scores
from relabel.sources.scores import ScoresParams, read_scores
from relabel.stages import Session, open_corpus
from relabel.stages.correlate import EvaluationResult, correlate


@pytest.fixture(scope="module")
def session(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Return captions and images of CxC's first pairs of val, with neighbours of images."""
    sits, sts, sis = (human_scores(task, "val") for task in ("sits", "sts", "sis"))
    own = dict.fromkeys([*sits.left[:30], *sts.left[:30], *sts.right[:30]])
    own = {caption: f"coco:9{i // 3}" for i, caption in enumerate(own)}
    images = dict.fromkeys([*sits.right[:30], *sis.left[:30], *sis.right[:30]])
    own |= {f"{image}-{i}": image for i, image in enumerate([*images, *images])}
    texts = np.random.default_rng(1).choice(["a dog", 'two "red" cats, sitting', "a\nbus"], (len(own), 3))
    captions = [Caption(c, i, "val", " ".join(t)) for (c, i), t in zip(own.items(), texts.tolist(), strict=True)]
    session = with_captions(small_project, tmp_path_factory.mktemp("judged"), captions)
    stages.encoding(session, "cbow", "val").run()
    stages.neighbour_table(session, "cbow", "val", "images").run()
    return session


def loop(session: Session, k: int, tasks: tuple[Task, ...]) -> set[tuple[str, str]]:
    corpus, label = open_corpus(session), stages.open_label(session, "cbow", "val")
    own = {c: corpus.image_ids[m] for m, c in zip(corpus.image, corpus.caption_ids, strict=True)}
    pairs = {(image, caption) for caption, image in own.items()}
    rows = np.arange(len(corpus), dtype=np.int32)
    for image, name in enumerate(corpus.image_ids):
        scores = label.pairs(corpus.references([image] * len(rows)), rows)
        pairs |= {(name, corpus.caption_ids[row]) for row in np.argsort(-scores, kind="stable")[:k]}
    for task in tasks:
        human = human_scores(task, "val")
        for left, right in zip(human.left, human.right, strict=True):
            if task == "sits" and left in own and right in corpus.image_of:
                pairs.add((right, left))
            if task == "sts" and left in own and right in own:
                pairs |= {(own[left], right), (own[right], left)}
            if task == "sis" and {left, right} <= corpus.image_of.keys():
                for one, other in ((left, right), (right, left)):
                    found = corpus.references([corpus.image_of[other]]).rows
                    pairs |= {(one, corpus.caption_ids[row]) for row in found}
    return pairs


@pytest.mark.parametrize(("k", "tasks"), [(0, ()), (3, ("sits", "sts")), (8, ("sis",)), (0, ("sts",))])
def test_the_pairs_equal_a_loop(k: int, tasks: tuple[Task, ...], session: Session, tmp_path: Path) -> None:
    folder, _ = exported(session, "candidates", split="val", k=k, cxc=tasks)
    table, corpus = pq.read_table(folder / "val.parquet"), open_corpus(session)
    assert table.column_names == ["image_id", "caption_id", "caption"]
    found = list(zip(table["image_id"].to_pylist(), table["caption_id"].to_pylist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == loop(session, k, tasks)
    assert table["caption"].to_pylist() == [corpus.texts[corpus.row_of[caption]] for _, caption in found]
    given = np.linspace(0, 1, len(found))
    pq.write_table(table.append_column("score", pa.array(given)), tmp_path / "scored.parquet")
    read = zip(*read_scores(tmp_path / "scored.parquet", corpus, (0.0, 1.0)), strict=True)
    assert {(corpus.image_ids[m], corpus.caption_ids[row]): score for m, row, score in read} == dict(
        zip(found, given, strict=True)
    )


def test_a_judge_that_scored_sits_alone_is_judged_on_it(session: Session, tmp_path: Path) -> None:
    folder, _ = exported(session, "candidates", split="val", k=0, cxc=("sits",))
    table = pq.read_table(folder / "val.parquet")
    pq.write_table(table.append_column("score", pa.array(np.linspace(0, 1, len(table)))), tmp_path / "scored.parquet")
    sources = {**session.config.sources, "scored": ScoresParams(file=str(tmp_path / "scored.parquet"))}

    def judged(tasks: tuple[Task, ...]) -> EvaluationResult:
        judge = session.config.judge.model_copy(update={"split": "val", "resamples": 0, "tasks": tasks})
        config = session.config.model_copy(update={"sources": sources, "judge": judge})
        runtime = replace(session.runtime, rebuild=True)
        return correlate(replace(session, config=config, runtime=runtime), ["scored"], ["cxc"])

    result = judged(("sits",))
    assert not result.problems
    assert {record["task"].removesuffix("_sampled") for record in result.report.records} == {"sits"}
    with pytest.raises(CheckError, match=r"have no score; first image coco:"):
        judged(TASKS)


def test_more_neighbours_than_there_are_are_refused(session: Session) -> None:
    with pytest.raises(MissingError, match="cbow has 8 neighbours per image, not 9"):
        exported(session, "candidates", split="val", k=9)


def test_a_small_split_gives_all_its_captions(small_project: Session, tmp_path: Path) -> None:
    captions = [Caption(f"c{i}", f"{i // 2}", "val", text) for i, text in enumerate(["a dog", "a cat", "a bus"])]
    session = with_captions(small_project, tmp_path, captions)
    stages.encoding(session, "cbow", "val").run()
    stages.neighbour_table(session, "cbow", "val", "images").run()
    folder, _ = exported(session, "candidates", split="val", k=8)
    assert len(pq.read_table(folder / "val.parquet")) == 2 * 3
