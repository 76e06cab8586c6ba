"""Contract: word vectors trained by relabel belong to a dataset and to its current captions, and trained models to the
current parameters. A label accepts no others and names the command that trains them. Models are read from the folder
of --data.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.relabel_cli.runner import invoke

from relabel.core.errors import MissingError
from relabel.sources.bert_sts.tune import TuneBertStsParams
from relabel.store.artefact import Recipe, build

PARAMS = {
    "ingest": {"format": "jsonl", "tokenizer": "none"},
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


def test_every_dataset_has_its_own_word_vectors() -> None:
    ingest("first", 8)
    ingest("second", 8)
    assert relabel("first", "tune", "cbow")[0] == 0
    code, output = encode("first")
    assert code == 0, output
    code, output = encode("second")
    assert code == 3
    assert "relabel tune cbow --dataset second" in output
    assert relabel("second", "tune", "cbow")[0] == 0
    assert encode("second")[0] == 0
    for dataset in ("first", "second"):
        manifest = json.loads(Path(f"labels/{dataset}/encodings/train/cbow/manifest.json").read_text())
        assert manifest["config"]["vectors"]["name"] == f"word2vec {dataset}-train 4d"
        assert "up to date" in encode(dataset)[1]


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


def test_a_fuse_is_read_from_the_folder_that_it_was_written_to() -> None:
    ingest("first", 8)
    code, output = relabel("first", "encode", "--label", "fuse", "--split", "train", "--data", "there")
    assert code == 3
    assert "there/fuse" in output


def test_a_model_of_other_parameters_is_kept_without_replace() -> None:
    ingest("mine", 8)
    assert relabel("mine", "tune", "cbow")[0] == 0
    vectors = next(Path("data/word2vec/mine").glob("*.txt"))
    before = vectors.read_bytes()
    for options in (["--width", "5"], ["--set", "tune.cbow.width=5"]):
        code, output = relabel("mine", "tune", "cbow", *options)
        assert (code, vectors.read_bytes()) == (2, before)
        assert "width (4 there, 5 here)" in output
        assert "--replace" in output
    assert relabel("mine", "tune", "cbow", "--width", "5", "--replace")[0] == 0
    assert not vectors.exists()
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS | {"tune": {"cbow": PARAMS["tune"]["cbow"] | {"width": 6}}}))
    assert relabel("mine", "tune", "cbow")[0] == 0  # an edited file replaces the model


@pytest.mark.parametrize("base", [True, False], ids=["base", "no base"])
def test_a_cross_encoder_of_other_parameters_is_refused(base: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_model(name: str, *_: object) -> SimpleNamespace:
        if not base:
            raise MissingError("no such model", where=name)
        return SimpleNamespace(sha256=lambda: "abc")

    monkeypatch.setattr("relabel.sources.models.files.find_model", find_model)
    ingest("mine", 8)
    trained = TuneBertStsParams(epochs=2).model_dump(mode="json", exclude={"base", "revision"})
    build(Path("data/bert_sts"), Recipe("cross_encoder", "x on stsb", lambda: trained, {"base": "abc"}, lambda _: None))
    label = ("encode", "--label", "pairs", "--split", "train", "--set", "sources.pairs={source: bert_sts, gate: null}")
    code, output = relabel("mine", *label)
    assert (code, "epochs (2 there, 3 here)" in output, "relabel tune bert_sts" in output) == (4, True, True)
    # The parameters are those of the model: the error is now that the folder holds no model.
    assert "epochs" not in relabel("mine", *label, "--set", "tune.bert_sts.epochs=2")[1]
