"""Contract: the files have the names, lines and shapes that the loaders of SCAN's family read, and `relabel ingest`
reads them back; `lookup.at_lines` gives the rows of the lines; blocks equal those of the lookup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel_train.lookup import open_lookup

CAPTIONS = 5


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return thirty images with 5 to 7 captions in three splits, encoded by word vectors."""
    folder, rng = tmp_path_factory.mktemp("scan"), np.random.default_rng(3)
    words = ["dog", "cat", "red", "bus", "man"]
    lines = []
    for image in range(30):
        for i in range(5 + image % 3):
            text = " ".join(rng.choice(words, 4)) + ("\u2028 x" if i == 0 else "")
            lines.append(f'c{image}-{i},{100 + image},{("train", "val", "test")[image // 10]},"{text}"')
    (folder / "captions.csv").write_text("\n".join(["caption_id,image_id,split,text", *lines]) + "\n", encoding="utf-8")
    vectors = [" ".join([word, *(f"{x:.3f}" for x in rng.normal(size=6))]) for word in words]
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n")
    settings = ["ingest.dataset=mine", f"ingest.path={folder / 'captions.csv'}", "ingest.tokenizer=none"]
    source = {"source": "cbow", "vectors": str(folder / "vectors.txt"), "tokenizer": "lower_split"}
    settings.append(f"sources={{cbow: {source}, meteor: {{source: meteor}}}}")
    built = Project(load_config(None, settings), Runtime(threads=1), folder / "labels")
    stages.ingest(built).run()
    for split in ("train", "val", "test", "all"):
        stages.encode(built, "cbow", split).run()
        stages.export_lookup(built, "cbow", split).run()
    return built


def lines_of(path: Path) -> list[str]:
    """Read a file as the loaders do, in text mode and line by line."""
    with path.open(encoding="utf-8") as file:
        return [line.strip() for line in file]


@pytest.mark.parametrize(("split", "name"), [("train", "train"), ("val", "dev"), ("test", "test")])
def test_lines_rows_and_blocks_agree_with_the_lookup(project: Project, split: str, name: str) -> None:
    job = stages.export(project, "scan", "cbow", split)
    job.run()
    corpus, lookup = project.corpus, open_lookup(project.folder("exports", split, "lookup", "cbow"))
    captions, rows = lines_of(job.out / f"{name}_caps.txt"), np.load(job.out / f"{name}_rows.npy")
    assert captions == [" ".join(corpus.texts[row].split()) for row in rows]
    assert lines_of(job.out / f"{name}_caption_ids.txt") == [corpus.caption_ids[row] for row in rows]
    images = [int(line) for line in lines_of(job.out / f"{name}_ids.txt")]
    assert len(captions) == CAPTIONS * len(images)
    assert [corpus.image_ids[corpus.image[row]] for row in rows[::CAPTIONS]] == [f"mine:{image}" for image in images]
    np.testing.assert_array_equal(lookup.at_lines(np.arange(len(captions)), CAPTIONS), rows)
    index = (7, 0, 33)  # as a collate function returns it
    np.testing.assert_array_equal(lookup.at_lines(index, CAPTIONS), rows[list(index)])
    block = np.load(job.out / f"{name}_relevance.npy", mmap_mode="r")
    assert block.shape == (len(images), len(captions))
    np.testing.assert_allclose(block, lookup.block(rows[::CAPTIONS], rows), atol=1e-6)


def test_all_splits_share_a_folder_and_ingest_reads_them_back(project: Project, tmp_path: Path) -> None:
    job = stages.export(with_params(project, "scan", dtype="float16"), "scan", "cbow", "all")
    manifest, _ = job.run()
    assert manifest.metadata["files"]["dev"] == {"images": 10, "lines": 50}
    assert np.load(job.out / "dev_relevance.npy").dtype == np.float16
    for path in job.out.glob("*_[ci][ad][ps]*.txt"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    settings = ["ingest.dataset=mine", "ingest.format=scan", f"ingest.path={tmp_path}", "ingest.tokenizer=none"]
    settings += ["ingest.captions_per_image=5"]
    again = Project(load_config(None, settings), Runtime(threads=1), tmp_path / "labels")
    stages.ingest(again).run()
    assert set(again.corpus.image_ids) == set(project.corpus.image_ids)
    assert len(again.corpus) == 150


def test_what_the_files_cannot_hold_is_refused(project: Project) -> None:
    with pytest.raises(UsageError, match="3 images of val have fewer than 6 captions; first mine:112"):
        stages.export(with_params(project, "scan", captions_per_image=6), "scan", "cbow", "val").run()
    with pytest.raises(UsageError, match=r"the block of test takes .* --no-block"):
        stages.export(with_params(project, "scan", max_bytes="1KiB"), "scan", "cbow", "test").run()
    other = with_params(project, "scan", captions_per_image=0, block=False)
    job = stages.export(replace(other, runtime=replace(other.runtime, replace=True)), "scan", "cbow", "test")
    manifest, _ = job.run()
    lines = manifest.metadata["files"]["test"]["lines"]
    assert len(lines_of(job.out / "test_ids.txt")) == lines == len(project.corpus.splits["test"])
    assert "test_relevance.npy" not in manifest.files
