"""Contract: an encoding that replaces an older one encodes new texts only, and keeps the vectors of known texts bit for
bit. If anything that vectors depend on has changed, nothing is kept. Its shards are like any others.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources import text_reuse
from relabel.sources.cosine import INDEX, read_vectors
from relabel.sources.models.encoder import Embeddings, SentenceEncoder
from relabel.sources.sbert import Sbert, SbertParams
from relabel.sources.text_reuse import TEXTS, TextTasks, seconds_of_rows, text_digest_bytes
from relabel.store import tasks
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, Manifest
from relabel.store.tasks import Blocks, make_all
from relabel.store.workdir import Work

WORDS = ("a", "dog", "runs", "two", "cats", "sleep", "on", "the", "red", "sofa", "man", "rides", "bicycle")


def captions(count: int, split: str = "train", seed: int = 0) -> list[Caption]:
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, int(rng.integers(2, 9)))) for _ in range(count)]
    return [Caption(f"{split}:{i}", f"{split}:{i // 5}", split, text) for i, text in enumerate(texts)]


OLD = captions(50)
NEW = [*OLD[:20], *OLD[21:], *captions(10, "val", 9), Caption("train:20", "train:4", "train", "a bicycle on a bicycle")]


@pytest.fixture
def encoded_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the texts that pass through the model, except the few that test it."""
    plain, seen = SentenceEncoder.encode, list[str]()

    def encode(self: SentenceEncoder, texts: Any, advance: Any = None) -> Embeddings:
        if advance is None:
            return plain(self, texts)
        seen.extend(texts)
        return plain(self, texts, advance)

    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    return seen


@pytest.fixture
def model(make_model: Any) -> str:
    return str(make_model("bert"))


def encode(out: Path, lines: list[Caption], **params: Any) -> tuple[Manifest, Corpus]:
    corpus, runtime = Corpus.from_captions(lines), Runtime(device="cpu", threads=2)
    source, rows = Sbert(SbertParams(**params)), range(len(lines))
    semantic = source.fingerprint_params(corpus, rows, runtime) | {"rows": [0, len(lines)], "rows_per_shard": 16}
    jobs = source.tasks(corpus, rows, 16, runtime)
    jobs.set_previous(out, semantic)

    def fill(work: Work) -> None:
        work.facts["rows"] = [0, len(lines)]
        make_all(jobs, work, runtime.progress)

    return build(out, ArtefactSpec("encoding", "sbert", semantic, {"corpus": corpus.digest}), fill)[0], corpus


def test_only_new_texts_are_encoded(model: str, tmp_path: Path, encoded_texts: list[str]) -> None:
    old, old_manifest = encode(tmp_path / "e", OLD, model=model)
    before = read_vectors(tmp_path / "e", old)
    encoded_texts.clear()
    new, now = encode(tmp_path / "e", NEW, model=model)
    old_texts = {line.text for line in OLD}
    assert sorted(encoded_texts) == sorted(line.text for line in NEW if line.text not in old_texts)
    kept_rows = [i for i, text in enumerate(now.texts) if text in old_texts]
    assert new.runtime["reused"] == {"from": old.fingerprint, "captions": len(kept_rows)}
    # The seconds of reused rows count for the new encoding.
    assert new.runtime["reused_seconds"] == pytest.approx(old.runtime["seconds"] * len(kept_rows) / len(OLD))
    assert seconds_of_rows(new) > new.runtime["seconds"]
    after, row_of = read_vectors(tmp_path / "e", new), {text: i for i, text in enumerate(old_manifest.texts)}
    assert np.array_equal(after[kept_rows], before[[row_of[now.texts[i]] for i in kept_rows]])
    complete, _ = encode(tmp_path / "whole", NEW, model=model)
    assert complete.runtime["reused"] == {"from": None, "captions": 0}
    assert np.abs(after - read_vectors(tmp_path / "whole", complete)).max() < 1e-6
    assert complete.facts == new.facts
    assert {n: e.bytes for n, e in complete.files.items()} == {n: e.bytes for n, e in new.files.items()}
    assert new.files[TEXTS].sha256 == complete.files[TEXTS].sha256
    assert new.files[TEXTS].bytes == text_digest_bytes(len(NEW))


@pytest.mark.parametrize("changed", [{"stored": "float16"}, {"max_length": 5}, {"prompt": "say: "}])
def test_nothing_is_kept_if_a_change_affects_vectors(
    model: str, tmp_path: Path, encoded_texts: list[str], changed: dict[str, Any]
) -> None:
    encode(tmp_path / "e", OLD, model=model)
    encoded_texts.clear()
    manifest, _ = encode(tmp_path / "e", OLD, model=model, **changed)
    assert sorted(encoded_texts) == sorted(line.text for line in OLD)
    assert manifest.runtime["reused"]["from"] is None


def test_another_index_encodes_nothing(model: str, tmp_path: Path, encoded_texts: list[str]) -> None:
    encode(tmp_path / "e", OLD, model=model)
    encoded_texts.clear()
    assert INDEX not in encode(tmp_path / "e", OLD, model=model, index=None)[0].files
    assert encoded_texts == []


def test_a_damaged_encoding_is_not_reused(model: str, tmp_path: Path, encoded_texts: list[str]) -> None:
    manifest, _ = encode(tmp_path / "e", OLD, model=model)
    shard = tmp_path / "e" / manifest.parts[1]
    body = bytearray(shard.read_bytes())
    body[len(body) // 2] ^= 4
    shard.write_bytes(body)
    encoded_texts.clear()
    encode(tmp_path / "e", NEW, model=model)
    assert len(encoded_texts) == len(NEW)


def test_failed_rows_are_encoded_again(
    model: str, tmp_path: Path, encoded_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, bad = SentenceEncoder.encode, OLD[30].text

    def broken(self: SentenceEncoder, texts: Any, *more: Any) -> Embeddings:
        vectors = plain(self, texts, *more)
        vectors.vectors[[i for i, text in enumerate(texts) if text == bad]] = np.nan
        return vectors

    with monkeypatch.context() as patch:
        patch.setattr(SentenceEncoder, "encode", broken)
        encode(tmp_path / "e", OLD, model=model)
    encoded_texts.clear()
    manifest, _ = encode(tmp_path / "e", NEW, model=model)
    assert bad in encoded_texts
    assert np.isfinite(read_vectors(tmp_path / "e", manifest)).all()


def test_a_killed_run_resumes(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, _ = encode(tmp_path / "e", OLD, model=model)
    with monkeypatch.context() as patch:
        shard, ranges_made = TextTasks.make_shard, list[range]()

        def stop(self: TextTasks, work: Work, rows: range, advance: Any) -> Any:
            ranges_made.append(rows)
            if len(ranges_made) == 3:
                raise KeyboardInterrupt
            return shard(self, work, rows, advance)

        patch.setattr(TextTasks, "make_shard", stop)
        with pytest.raises(KeyboardInterrupt):
            encode(tmp_path / "e", NEW, model=model)
    broken, _ = encode(tmp_path / "e", NEW, model=model)
    assert broken.runtime["reused"]["from"] == old.fingerprint
    encode(tmp_path / "f", OLD, model=model)
    unbroken, _ = encode(tmp_path / "f", NEW, model=model)
    assert broken.files == unbroken.files


def test_a_vector_depends_on_its_text_only(minilm: Path) -> None:
    encoder = SentenceEncoder(minilm, None, None, "float32", Runtime(device="cpu", threads=2))
    texts = sorted({line.text for line in captions(60)})
    together = encoder.encode(texts).vectors
    alone = np.concatenate([encoder.encode([text]).vectors for text in texts[::6]])
    assert np.abs(alone - together[::6]).max() < 1e-6


def test_an_interrupted_shard_resumes_from_its_saved_blocks(
    model: str, tmp_path: Path, encoded_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, _ = encode(tmp_path / "whole", OLD, model=model)
    monkeypatch.setattr(text_reuse, "Blocks", partial(Blocks, first=4))
    plain, calls = SentenceEncoder.encode, list[int]()

    def killed(self: SentenceEncoder, texts: Any, advance: Any = None) -> Embeddings:
        if advance is not None:
            calls.append(len(texts))
            if len(calls) == 3:
                assert tasks.saved is not None
                described.append(tasks.saved.describe())
                raise KeyboardInterrupt
        return plain(self, texts, advance) if advance is not None else plain(self, texts)

    described = list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(SentenceEncoder, "encode", killed)
        patch.setattr("relabel.store.tasks.BLOCK_SECONDS", 0.0)  # the blocks after the first one are of one caption
        with pytest.raises(KeyboardInterrupt):
            encode(tmp_path / "out", OLD, model=model)
    assert calls == [4, 1, 1]
    assert described[0].startswith("5 of 50 captions (sentence embeddings")
    encoded_texts.clear()
    manifest, _ = encode(tmp_path / "out", OLD, model=model)
    assert encoded_texts == [line.text for line in OLD[5:]]
    assert {name: entry.sha256 for name, entry in manifest.files.items()} == {
        name: entry.sha256 for name, entry in complete.files.items()
    }
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*manifest.files, "manifest.json"])
