"""Contract: every Python block of README.md and docs/ runs unchanged, in the order of the page, in a folder with
labels of a small corpus. A block that cannot run states the reason, and such blocks are few.
"""

from __future__ import annotations

import doctest
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau
from tests.examples.documents import Block, pages, python_blocks
from tests.golden.today import Folder
from tests.relabel.sources.fuse.fixtures import linear_head, write_fuse_model

from relabel.corpus import Corpus
from relabel.judge.eccv import Eccv, Queries
from relabel.sources.fuse.model import FuseModel, Part, without_rows
from relabel.store.manifest import read_manifest
from relabel_train.scoring.fuse import Feature

WITH_PYTHON = [page for page in pages() if python_blocks(page)]


def stand_ins(folder: Path, split: str) -> dict[str, Any]:
    """Return stand-ins for the names that pages leave to the reader: a dataset, a model and features."""
    import torch

    from relabel_train.lookup import open_lookup

    lookup = open_lookup(folder / f"labels/coco/exports/{split}/lookup/sbert")
    generator = torch.Generator().manual_seed(0)
    samples = lookup.samples()
    images, captions = (torch.randn(len(samples), 8, generator=generator) for _ in range(2))
    columns = zip(samples, images, captions, strict=True)
    dataset = [{**sample, "image": image, "caption": caption} for sample, image, caption in columns]
    weights = torch.nn.Parameter(torch.eye(8))

    def model(batch: dict[str, Any]) -> Any:
        return torch.cosine_similarity((batch["image"] @ weights)[:, None], batch["caption"][None], dim=-1)

    return {"dataset": dataset, "model": model, "file_of": lambda image_id: f"{image_id}.jpg"}


def candidates_of_both_splits(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the candidates that the commands of the page write; the judge is a stand-in."""
    for split in ("val", "train"):
        folder.done("encode", "--label", "sbert", "--split", split)
        folder.done("neighbours", "--label", "sbert", "--candidates", split, "--queries", "images")
        folder.done("export", "candidates", "--label", "sbert", "--split", split, "-k", "20")

    class Judge:
        def __init__(self, name: str) -> None: ...

        def predict(self, pairs: list[tuple[str, str]], activation_fn: Any) -> Any:
            assert all(caption and image.endswith(".jpg") for caption, image in pairs)
            return np.linspace(0, 1, len(pairs), dtype=np.float32)

    monkeypatch.setattr("sentence_transformers.CrossEncoder", Judge)


def stand_in_of_capevalkit() -> ModuleType:
    """Return a module with the interface of capevalkit 0.1.3 that pages call: samples in, a score for each id out."""
    texts = [("a dog", "a brown dog", 4), ("two cats", "a cat", 3), ("a dog", "two cats", 1), ("a boat", "a cat", 0)]
    samples = []
    for n, (own, caption, human) in enumerate(texts):
        told = {"references": [own], "prediction": caption, "human_score": float(human)}
        samples.append(SimpleNamespace(id=f"{n}.jpg_{n}", image=f"{n}.jpg", **told))

    def evaluate_metric(*, benchmark: str, metric: Any, metric_name: str = "metric") -> dict[str, Any]:
        scores = metric(samples)
        assert scores.keys() == {sample.id for sample in samples}
        tau = kendalltau([scores[s.id] for s in samples], [s.human_score for s in samples], variant="c").statistic
        return {"metric": metric_name, "benchmark": benchmark, "correlations": {"kendall_tau_c": 100 * tau}}

    kit = ModuleType("capevalkit")
    kit.api = SimpleNamespace(evaluate_metric=evaluate_metric)  # type: ignore[attr-defined]
    return kit


def write_fuse(folder: Path) -> None:
    """Write a fuse of sbert and cider, which leans on sbert."""
    parts = {}
    for name in ("sbert", "cider"):
        config = read_manifest(folder / f"labels/coco/encodings/train/{name}", "encoding").config
        parts[name] = Part(str(config["source"]), False, without_rows(config))
    head = linear_head({Feature("sbert", "max"): 0.8, Feature("cider", "set"): 0.01}, 0.1)
    write_fuse_model(folder / "data/fuse", FuseModel(parts, {"set": head, "single": head}))


def own_matches(corpus: Corpus, data: Path) -> Eccv:
    """Replace `read_eccv`, which needs all of COCO's test split: an image matches its own captions."""
    captions = np.flatnonzero(np.asarray(corpus.table["split"]) == "test").astype(np.int32)
    images, place = np.unique(corpus.image[captions], return_inverse=True)
    own_captions = [np.flatnonzero(place == i).astype(np.int64) for i in range(len(images))]
    image_names = [corpus.image_ids[i] for i in images]
    caption_names = [corpus.caption_ids[row] for row in captions]
    own_images = [np.array([i], np.int64) for i in place]
    i2t = Queries(image_names, images, own_captions, np.bincount(place))
    t2i = Queries(caption_names, captions, own_images, np.ones(len(captions), np.int64))
    return Eccv(corpus, captions, images, {"i2t": i2t, "t2i": t2i})


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Run a block, as a script or as a doctest; an error names the page and the line."""
    if block.text.lstrip().startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.text, namespace, block.page, block.page, block.line - 1)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, clear_globs=False)
        namespace |= test.globs
        assert not runner.failures
        return
    code = compile("\n" * (block.line - 1) + block.text, block.page, "exec")
    exec(code, namespace)  # the pages belong to this checkout


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_blocks_of_a_page_run(page: str, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    shutil.copytree(labelled, folder)
    if page == "docs/evaluation-sets.md":
        write_fuse(folder)
        kit = stand_in_of_capevalkit()
        monkeypatch.setitem(sys.modules, "capevalkit", kit)
        monkeypatch.setitem(sys.modules, "capevalkit.api", kit.api)
    if page == "docs/outside-teachers.md":
        candidates_of_both_splits(Folder(folder), monkeypatch)
    if page == "docs/your-own-captions.md":  # which builds labels/mine by commands
        (folder / "labels/mine").symlink_to("coco")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RELABEL_DATA", str(folder / "data"))
    monkeypatch.setattr("relabel.judge.eccv.read_eccv", own_matches)
    # README trains on what `make demo` has built.
    namespace = {"__name__": "__page__", **stand_ins(folder, "test" if page == "README.md" else "train")}
    for block in python_blocks(page):
        if block.reason is None:
            run(block, namespace)


def test_blocks_that_are_not_run_are_few_and_have_a_reason() -> None:
    every = [block for page in pages() for block in python_blocks(page)]
    left_out = [block for block in every if block.reason is not None]
    assert all(block.reason for block in left_out)
    assert len(left_out) <= max(1, len(every) // 10), left_out
