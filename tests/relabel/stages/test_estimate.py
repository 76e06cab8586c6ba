"""Contract: a dry run estimates the rows and bytes that the run then writes, exactly for files of fixed shape. A sample
consists of complete images. Sizes that depend on the words are extrapolated along a power of the count."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from relabel.config import Config, load_config
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.vector_index import make_index
from relabel.stages import Project
from relabel.stages.dry_run import Step, plan_run
from relabel.stages.estimate import extrapolate, index_bytes, sample_images
from relabel.stages.run import run

LABELS = {
    "cider": {"source": "cider", "tokenizer": "lower_split"},
    "cbow": {"source": "cbow", "vectors": "words.txt", "tokenizer": "lower_split"},
}


@pytest.fixture
def project(tmp_path: Path, coco: Corpus, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return COCO's first 700 val images in shards of 1,000 captions, with random word vectors."""
    monkeypatch.chdir(tmp_path)
    images = coco.images(["val"])
    rows = range(int(coco.indptr[images.start]), int(coco.indptr[images.start + 700]))
    with Path("captions.jsonl").open("w", encoding="utf-8") as file:
        for row in rows:
            ids = {"caption_id": coco.caption_ids[row], "image_id": coco.image_ids[coco.image[row]]}
            file.write(json.dumps({**ids, "split": "train", "text": coco.texts[row]}) + "\n")
    words = sorted({word for row in rows for word in coco.texts[row].lower().split()})
    vectors = np.random.default_rng(0).standard_normal((len(words), 12))
    lines = [f"{word} {' '.join(f'{x:.4f}' for x in vector)}\n" for word, vector in zip(words, vectors, strict=True)]
    Path("words.txt").write_text("".join(lines), encoding="utf-8")
    settings = ["ingest.format=jsonl", "ingest.path=captions.jsonl", "ingest.tokenizer=none", "ingest.dataset=mine"]
    settings += ["encode.rows_per_shard=1000", "neighbours.k=7", f"sources={json.dumps(LABELS)}"]
    return Project(Config(**load_config(None, [*settings, "export.labels=[cider, cbow]"]).model_dump()), Runtime())


def by_name(steps: list[Step]) -> dict[tuple[str, str], Step]:
    return {(step.stage, step.name): step for step in steps}


def test_a_dry_run_estimates_the_sizes_of_the_run(project: Project) -> None:
    from relabel import stages

    stages.ingest(project)
    estimates = by_name(plan_run(project, "all"))
    left = sorted(p.name for p in Path("labels/mine").iterdir() if p.name != ".work")
    assert left == ["corpus"]  # the dry run leaves nothing else
    assert run(project, "all").problems == []
    written = by_name(plan_run(project, "all"))
    assert {step.state for step in written.values()} == {"done"}
    assert len(written) == 8
    for key, step in written.items():
        assert estimates[key].rows == step.rows, key
        if estimates[key].exact:
            assert estimates[key].bytes == step.bytes, key
        else:  # n-grams: the sample covers most of this corpus, but not all
            assert estimates[key].bytes == pytest.approx(step.bytes, rel=0.2), key
    exact = {key for key, step in estimates.items() if step.exact}
    neighbour_steps = {("neighbours", "cider"), ("neighbours", "cbow")}
    assert exact == {("ingest", "mine"), ("encode", "cbow"), ("export", "cbow"), *neighbour_steps}


def test_a_sample_has_complete_images_spread_evenly(coco: Corpus) -> None:
    rows = coco.rows(["val"])
    sample = sample_images(coco, rows, 500)
    assert 450 <= len(sample) <= 550
    image_of = {coco.image_ids[m]: m for m in coco.images(["val"])}
    places = [image_of[name] for name in sample.image_ids]
    assert places[0] == coco.images(["val"]).start
    assert places[-1] == coco.images(["val"]).stop - 1
    assert np.ptp(np.diff(places)) <= 1
    for m, name in enumerate(sample.image_ids):
        of = slice(int(coco.indptr[image_of[name]]), int(coco.indptr[image_of[name] + 1]))
        mine = slice(int(sample.indptr[m]), int(sample.indptr[m + 1]))
        assert sample.caption_ids[mine] == coco.caption_ids[of]
    assert sample.table["row"].to_pylist() == list(range(len(sample)))
    assert len(sample_images(coco, range(rows.start, rows.start + int(coco.indptr[1])), 10**9)) >= 5


def test_the_size_of_a_flat_index_is_exact_and_of_others_unknown() -> None:
    import faiss

    index = make_index("Flat", 33)
    index.add(np.zeros((123, 33), np.float32))
    assert index_bytes("Flat", 33, 123) == len(faiss.serialize_index(index))
    assert index_bytes(None, 33, 123) == 0
    assert index_bytes("IVF4,Flat", 33, 123) is None


def test_growth_is_extrapolated_from_two_measurements() -> None:
    assert extrapolate((10, 5 * 10**0.5), (40, 5 * 40**0.5), 10_000) == pytest.approx(500)
    assert extrapolate((10, 9.0), (30, 90.0), 60) == pytest.approx(180.0)  # noise: at most linear growth
