"""Contract: a fuse is an elementwise function of its parts. `pairs` equals loops, and `block` is within its error of
them. A gate decides what is scored. Circular labels are refused.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.encodings import find
from tests.relabel.sources.fuse.fixtures import linear_head, small_fuse, write_fuse_model

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.finder import Search
from relabel.sources.fuse.model import FuseModel, Part
from relabel.sources.fuse.relevance import FuseRelevance
from relabel.sources.relevance import block_of_pairs
from relabel.stages import Session
from relabel_train.scoring.fuse import Feature

POOLINGS: tuple[Pooling, ...] = ("set", "first", "max", "mean")


def one_score(fuse: FuseRelevance, references: list[int], caption: int, pooling: str) -> float:
    """Return r of one set and caption from the parts' scores of single references."""
    if pooling == "first":
        references, pooling = references[:1], "set"
    if pooling in ("max", "mean"):
        each = [one_score(fuse, [r], caption, "set") for r in references]
        return max(each) if pooling == "max" else sum(each) / len(each)
    head = fuse.model.heads["single" if len(references) == 1 else "set"]
    values = []
    for part, look in head.features:
        sets = References.of([references] if look == "set" else [[r] for r in references])
        captions = np.full(len(sets), caption, np.int32)
        scores = fuse.parts[part].pairs(sets, captions, "set" if look == "set" else "first")
        values.append(scores.mean() if look == "mean" else scores.max())
    return float(head.score([np.array([value]) for value in values])[0])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pairs_equal_loops_and_block_approximates_them(pooling: Pooling) -> None:
    fuse = small_fuse()
    corpus = fuse.corpus
    references = corpus.references(range(12))
    captions = np.array([3, 0, 11, 11, len(corpus) - 1], np.int32)
    block, pairs = fuse.block(references, captions, pooling), block_of_pairs(fuse, references, captions, pooling)
    assert 0 < np.abs(block - pairs).max() <= fuse.block_error
    for m, j in product(range(12), range(len(captions))):
        assert pairs[m, j] == pytest.approx(one_score(fuse, references[m].tolist(), captions[j], pooling), abs=1e-12)


def test_a_new_text_is_a_single_reference() -> None:
    fuse = small_fuse()
    captions = np.array([5, 1, 9], np.int32)
    head = fuse.model.heads["single"]
    values = [fuse.parts[f.part].query("abc", captions) for f in head.features]
    assert np.array_equal(fuse.query("abc", captions), head.score(values))


def test_a_gate_decides_what_is_scored(tmp_path: Path) -> None:
    fuse = small_fuse(gate="near", gate_top=4)
    rows = np.arange(len(fuse.corpus), dtype=np.int32)
    search = Search(References.single(rows), rows, rows, 3)
    finder = fuse.finder(search, "set", Runtime(threads=1))
    fuse.parts["far"].requests = 0  # type: ignore[attr-defined]
    rows_found, _ = find(finder, tmp_path)
    assert fuse.parts["far"].requests == 4 * len(rows)  # type: ignore[attr-defined]
    near = fuse.parts["near"].block(References.single(rows), rows)
    np.fill_diagonal(near, -2)
    for i in rows:
        assert set(rows_found[i]) <= set(np.argsort(-near[i])[:4].tolist())


# Labels in a project


def fuse_project(folder: Path, small: Session, sources: dict[str, dict[str, object]]) -> Session:
    labels = {label: params.model_dump() for label, params in small.config.sources.items()}
    config = load_config(None, [], {"sources": labels | sources})
    config = small.config.model_copy(update={"sources": config.sources})
    return Session(config, small.runtime, small.labels)


def test_a_circular_label_is_refused(small_project: Session, tmp_path: Path) -> None:
    """Check the cycle a -> b -> a and a label that gates itself."""
    nothing = Part("fuse", False, {})
    head, other = (linear_head({Feature(label, "max"): 1.0}) for label in "ba")
    write_fuse_model(tmp_path / "a", FuseModel({"b": nothing}, {"set": head, "single": head}))
    write_fuse_model(tmp_path / "b", FuseModel({"a": nothing}, {"set": other, "single": other}))
    write_fuse_model(tmp_path / "c", FuseModel({"cbow": nothing}, {"set": head, "single": head}))
    sources = {n: {"source": "fuse", "model": str(tmp_path / n)} for n in "abc"}
    sources["c"]["gate"] = "c"
    session = fuse_project(tmp_path, small_project, sources)  # type: ignore[arg-type]
    for label, way in (("a", "a -> b -> a"), ("b", "b -> a -> b"), ("c", "c -> c")):
        for verb in (lambda n: stages.encoding(session, n, "all"), lambda n: stages.build_encoding(session, n, "all")):
            with pytest.raises(UsageError, match=f"label {label} is part of itself: {way}"):
                verb(label)
