"""Contract: `tune best` makes both models of the recommended label from captions alone, in the folders that labels
read. A second call repeats nothing, and datasets other than COCO are refused.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.relabel.sources.sbert.tiny_encoder import small_corpus, small_scores, tiny_encoder, use_small_scores

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Session, best
from relabel.store.manifest import open_artefact


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return 24 captioned images with generated scores, a tiny encoder, and files of sentence pairs in the data
    folder.
    """
    pytest.importorskip("gensim")
    use_small_scores(monkeypatch)
    monkeypatch.setitem(best._BEST_FUSE, "altered_pairs", 6)
    captions = [f"a red dog near a {size} cat" for size in ("big", "small", "wet", "old", "young", "sad")]
    monkeypatch.setattr("relabel.sources.fuse.tune.read_train_captions", lambda _: captions)
    monkeypatch.setattr("relabel.sources.fuse.tune.human_scores", small_scores())
    monkeypatch.setattr("relabel.sources.sbert.tune_data.fetch", lambda name, data, *rest: [data / rest[-1][0]])
    monkeypatch.chdir(tmp_path)
    corpus = small_corpus()
    rows = [
        {"caption_id": i[5:], "image_id": corpus.image_ids[m][5:], "split": "val", "text": text}
        for i, m, text in zip(corpus.caption_ids, corpus.image, corpus.texts, strict=True)
        if text != "never read"
    ]
    rows += [
        {"caption_id": str(9000 + n), "image_id": str(900 + n // 5), "split": "train", "text": "a dog"}
        for n in range(10)
    ]
    Path("captions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("data").mkdir()
    Path("data/stsb-en-train.csv").write_text("a man,a dog,0.0\nthe bus,the red bus,5.0\n" * 20)
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    sick = "".join(f"{i}\ta big dog\ttwo cats\t{1 + i % 5}\tNEUTRAL\n" for i in range(20))
    Path("data/SICK_train.txt").write_text(header + sick)
    words = "{tokenizer: lower_split, width: 4, min_count: 1, epochs: 1}"
    settings = [
        "ingest={dataset: coco, format: jsonl, path: captions.jsonl, expected: {}}",
        f"tune.sbert={{base: {tiny_encoder(tmp_path / 'tiny')}}}",
        f"tune.word2vec={words}",
        "sources.word2vec.tokenizer=lower_split",
        "sources.cider.tokenizer=lower_split",
    ]
    return Session(load_config(None, settings), Runtime(data=Path("data"), threads=1, device="cpu"))


@pytest.mark.slow
def test_from_captions_to_the_label(session: Session) -> None:
    models = stages.tune_best(session)
    assert open_artefact(Path("data/fuse"), "fuse_model").metadata["parts"] == ["tuned", "word2vec", "cider"]
    encoding = stages.build_encoding(session, "fuse", "val")
    assert encoding.kind == "encoding"
    assert models == {"tuned": open_artefact(Path("data/sbert-cxc"), "sentence_encoder"), "fuse": models["fuse"]}
    assert stages.tune_best(session) == models
    ingest = session.config.ingest.model_copy(update={"dataset": "mine"})
    with pytest.raises(UsageError, match="not those of mine"):
        stages.tune_best(replace(session, config=session.config.model_copy(update={"ingest": ingest})))
