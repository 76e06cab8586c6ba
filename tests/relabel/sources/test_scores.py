"""Contract: scores of a file are the relevance of its pairs, by id, with or without a namespace, in any order.

All other pairs are refused by name, have the number of `missing`, or follow a gate below every score. Pairs, blocks,
neighbours, lookups and a fuse of such a label equal loops. Faulty records are refused by file and number, and a file
without a pair of the split is refused.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.relabel.sources.fuse.fixtures import linear_head

from relabel import stages
from relabel.core.errors import CheckError, UsageError
from relabel.corpus import Corpus, References
from relabel.sources.fuse.model import FuseModel, Part
from relabel.sources.fuse.relevance import FuseRelevance
from relabel.sources.scores import ScoresParams, read_scores
from relabel.stages import Session, open_corpus
from relabel.store.manifest import read_parts
from relabel.store.workdir import Work
from relabel_train.lookup import open_lookup
from relabel_train.lookup.lookup import open_blocks
from relabel_train.scoring.fuse import Feature
from relabel_train.scoring.references import PaddedReferences

BOUNDS = {"cbow": (-1.0, 1.0), "cider": (0.0, 10.0)}
Pairs = dict[tuple[int, int], float]


def write(path: Path, columns: dict[str, Any]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in table.to_pylist()), encoding="utf-8")
    return path


def drawn(corpus: Corpus, share: float) -> Pairs:
    """Draw scores of a share of all pairs of an image and a caption."""
    rng, images, rows = np.random.default_rng(1), len(corpus.image_ids), len(corpus)
    chosen = rng.permutation(images * rows)[: round(share * images * rows)]
    return {divmod(int(key), rows): float(score) for key, score in zip(chosen, rng.random(len(chosen)), strict=True)}


def labelled(session: Session, folder: Path, pairs: Pairs, form: str = "parquet", **params: Any) -> Session:
    """Return the project with a label `judge` of some pairs, encoded; half of the ids have no namespace."""
    corpus, bare = open_corpus(session), lambda name, i: name if i % 2 else name.partition(":")[2]
    given = {
        "image_id": [bare(corpus.image_ids[m], i) for i, (m, _) in enumerate(pairs)],
        "caption": ["two\nlines"] * len(pairs),
        "caption_id": [bare(corpus.caption_ids[row], i) for i, (_, row) in enumerate(pairs)],
        "score": list(pairs.values()),
    }
    params["file"] = str(write(folder / f"given.{form}", given))
    config = session.config.model_copy(
        update={"sources": {**session.config.sources, "judge": ScoresParams.model_validate(params)}}
    )
    other = replace(session, config=config, labels=folder / "labels")
    for names in (("corpus",), *(("encodings", "all", label) for label in ("cbow", "cider", "same_image"))):
        other.folder(*names).parent.mkdir(parents=True, exist_ok=True)
        other.folder(*names).symlink_to(session.folder(*names).absolute())
    stages.encoding(other, "judge", "all").run()
    return other


def expected(session: Session, pairs: Pairs, missing: Any, sets: References, captions: Any) -> Any:
    """Return the block of all sets and captions by a loop."""
    gate = stages.open_label(session, missing, "all") if missing in BOUNDS else None
    out = np.empty((len(sets), len(captions)))
    for m, references in enumerate(sets):
        for j, caption in enumerate(captions):
            found = pairs.get((int(open_corpus(session).image[references[0]]), int(caption)))
            if found is None and gate is not None:
                low, high = BOUNDS[missing]
                g = gate.pairs(References.of([references]), np.array([caption], np.int32), "max")[0]
                found = min(0.0, -(high - g) / (high - low))
            out[m, j] = missing if found is None else found
    return out


@pytest.mark.parametrize(
    ("form", "missing", "share"),
    [("parquet", "refuse", 1.0), ("csv", 0.25, 0.1), ("jsonl", -2, 0.1), ("csv", "cbow", 0.1), ("jsonl", "cider", 0.1)],
)
def test_every_answer_equals_a_loop(
    form: str, missing: Any, share: float, small_project: Session, tmp_path: Path
) -> None:
    pairs = drawn(open_corpus(small_project), share)
    session = labelled(small_project, tmp_path, pairs, form, missing=missing)
    label, corpus = stages.open_label(session, "judge", "all"), open_corpus(session)
    images, captions = np.arange(0, 60, 7), np.arange(len(corpus), dtype=np.int32)[::-3]
    sets = corpus.references(images)
    wanted = expected(session, pairs, missing, sets, captions)
    low, high = session.config.source("judge").spec.bounds
    assert low <= wanted.min() <= wanted.max() <= high
    np.testing.assert_allclose(label.block(sets, captions), wanted, atol=1e-6)
    each = label.pairs(sets.take(np.repeat(np.arange(len(sets)), len(captions))), np.tile(captions, len(sets)))
    np.testing.assert_allclose(each.reshape(wanted.shape), wanted, atol=1e-12)

    table = stages.neighbour_table(session, "judge", "all", "images").run()[0]
    near = read_parts(session.folder("neighbours", "all", "images", "judge"), table).take(images)
    every = np.arange(len(corpus), dtype=np.int32)
    block = expected(session, pairs, missing, sets, every)
    best = np.argsort(-block, axis=1, kind="stable")[:, :8]
    np.testing.assert_allclose(near["scores"].to_pylist(), np.take_along_axis(block, best, 1), atol=1e-6)
    if missing not in BOUNDS:  # two scores of a gate may be equal but for rounding
        assert near["neighbours"].to_pylist() == best.tolist()

    stages.lookup_export(session, "judge", "all").run()
    lookup = open_lookup(session.folder("exports", "all", "lookup", "judge"), verify=True)
    found = lookup.block(corpus.indptr[images], captions, dtype=np.float64)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_pair_without_a_score_is_refused_by_name(small_project: Session, tmp_path: Path) -> None:
    corpus = open_corpus(small_project)
    pairs = drawn(corpus, 1.0)
    del pairs[3, 5]
    session = labelled(small_project, tmp_path, pairs)
    label = stages.open_label(session, "judge", "all")
    named = f"no score; first image {corpus.image_ids[3]}, caption {corpus.caption_ids[5]}"
    with pytest.raises(CheckError, match=f"1 of 2 pairs have {named}"):
        label.pairs(corpus.references([2, 3]), np.array([5, 5], np.int32))
    with pytest.raises(CheckError, match=named):
        stages.lookup_export(session, "judge", "all").run()
    assert label.block(corpus.references([3]), np.array([4, 6], np.int32)).tolist() == [[pairs[3, 4], pairs[3, 6]]]
    with pytest.raises(UsageError, match="no pooling 'set'"):
        session.config.source("judge").check_pooling("set")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("score", float("nan"), "1 of 4 records have a score that is not a finite number"),
        ("score", float("inf"), "not a finite number; first inf"),
        ("score", 1.5, "outside 0 to 1; first 1.5"),
        ("score", None, "not a finite number"),
        ("image_id", "nobody", "1 of 4 records have an unknown image id; first nobody"),
        ("caption_id", None, "have an unknown caption id"),
        ("image_id", "图0", "1 of 4 records repeat a pair; first 图0 ç0-0"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_faulty_record_is_refused_by_its_number(
    column: str, value: Any, message: str, form: str, small_project: Session, tmp_path: Path
) -> None:
    columns = {"image_id": ["图0", "图1", "图2", "图3"], "caption_id": ["ç0-0"] * 4, "score": [0.1, 0.2, 0.3, 0.4]}
    columns[column][2] = value
    with pytest.raises(CheckError, match=message) as caught:
        read_scores(write(tmp_path / f"given.{form}", columns), open_corpus(small_project), (0.0, 1.0))
    assert caught.value.where == f"{tmp_path / f'given.{form}'}: record 3"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"PAR1", "of scores: "),
        ("a.csv", b"image_id,score\n1,2\n", "caption_id"),
        ("a.csv", b"image_id,caption_id,score\n1,2,high\n", "high"),
        ("a.jsonl", b'{"image_id": 1, "score": 1}\n', "no column caption_id"),
        ("a.txt", b"1 2 0.5\n", "not .parquet, .csv or .jsonl"),
        ("a.jsonl", b"[1]\n", "of scores: "),
    ],
)
def test_a_file_of_something_else_is_refused(
    name: str, content: bytes, message: str, small_project: Session, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckError, match=message):
        read_scores(tmp_path / name, open_corpus(small_project), (0.0, 1.0))


def test_what_cannot_be_a_label_is_refused(small_project: Session, tmp_path: Path) -> None:
    pairs = drawn(open_corpus(small_project), 0.01)
    with pytest.raises(UsageError, match="same_image cannot score pairs without a score"):
        labelled(small_project, tmp_path, pairs, missing="same_image")
    with pytest.raises(UsageError, match="the file of scores is not set"):
        stages.encoding(small_project, "scores", "all").run()
    (tmp_path / "two").mkdir()
    other = labelled(small_project, tmp_path / "two", {(0, 0): 0.5}, missing=0)
    with pytest.raises(CheckError, match="none of the 1 pairs"):
        stages.encoding(other, "judge", "test").run()


def test_a_fuse_of_scores_has_a_lookup(small_project: Session, tmp_path: Path) -> None:
    """Check that the arrays of a part keep those of its gate."""
    session = labelled(small_project, tmp_path, drawn(open_corpus(small_project), 0.1), missing="cbow")
    parts = {name: stages.open_label(session, name, "all") for name in ("judge", "cbow")}
    head = linear_head({Feature("judge", "max"): 0.3, Feature("cbow", "max"): 0.2}, 0.3)
    model = FuseModel(
        {n: Part(session.config.source(n).spec.name, False, {}) for n in parts}, {"set": head, "single": head}
    )
    corpus = open_corpus(session)
    fuse = FuseRelevance(corpus, parts["cbow"].rows, "set", parts, model)
    (tmp_path / "lookup").mkdir()
    arrays = fuse.write_lookup(Work(tmp_path / "lookup"))
    stored = {path.stem: np.load(path) for path in (tmp_path / "lookup").glob("*.npy")}
    stored |= {"image": corpus.image, "indptr": corpus.indptr}
    blocks = open_blocks(arrays.kind, stored, arrays.sizes, arrays.params)
    rows = corpus.indptr[:-1]
    out = np.empty((60, len(rows)))
    blocks.fill(PaddedReferences.of_images(corpus.image, corpus.indptr, rows, 5, False), rows, "set", out)
    wanted = fuse.block(corpus.references(range(60)), rows.astype(np.int32))
    np.testing.assert_allclose(out, wanted, atol=1e-6)
