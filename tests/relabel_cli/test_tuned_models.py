"""Contract: word vectors trained by relabel belong to the current captions of their dataset. A label accepts no others
and names the command that trains them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.relabel_cli.runner import invoke

PARAMS = {
    "ingest": {"format": "jsonl"},
    "tune": {"cbow": {"tokenizer": "lower_split", "width": 4, "min_count": 1, "epochs": 1}},
    "sources": {"cbow": {"source": "cbow", "tokenizer": "lower_split"}},
}


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELABEL_DATA", raising=False)
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))


def ingest(dataset: str, captions: int) -> None:
    rows = [
        {"caption_id": n, "image_id": n // 2, "split": "train", "text": f"{dataset} dog {n}"} for n in range(captions)
    ]
    Path(f"{dataset}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert relabel(dataset, "ingest", "--path", f"{dataset}.jsonl")[0] == 0


def relabel(dataset: str, *arguments: str) -> tuple[int, str]:
    return invoke(*arguments, "--dataset", dataset)


def encode(dataset: str) -> tuple[int, str]:
    return invoke("encode", "--label", "cbow", "--split", "train", "--dataset", dataset, quiet=False)


def test_word_vectors_of_changed_captions_are_trained_again() -> None:
    ingest("first", 8)
    assert relabel("first", "tune", "cbow")[0] == 0
    assert encode("first")[0] == 0
    ingest("first", 9)
    code, output = encode("first")
    assert code == 4
    assert "relabel tune cbow --dataset first" in output
    code, output = relabel("first", "run", "--split", "train", "--label", "cbow", "--dry-run", "--json")
    assert [step["state"] for step in json.loads(output) if step["stage"] == "tune"] == ["to do"]
    assert relabel("first", "tune", "cbow")[0] == 0
    assert encode("first")[0] == 0
