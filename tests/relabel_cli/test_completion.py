"""Contract: a shell completes the values of --label, --dataset and --split from the parameter file and the folder of
labels; no verb is imported for it, and nothing that cannot be read ends in an error. Usual words for splits are
understood by every verb, and a mistyped file or dataset of `run` gets the nearest name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.relabel_cli.runner import invoke

SCRIPT = """
import sys
from relabel_cli.main import load_root
try:
    load_root()(standalone_mode=False)
finally:
    print(sorted({"numpy", "pyarrow", "relabel.config", "relabel.stages"} & {*sys.modules}), file=sys.stderr)
"""


def complete(words: str) -> tuple[list[str], str]:
    """Return the values that bash is offered for a command line, and the large modules that were imported."""
    call = {"_RELABEL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = ["-c", "import sys; sys.argv = ['relabel']\n" + SCRIPT]
    done = subprocess.run([sys.executable, *code], capture_output=True, text=True, env=os.environ | call, check=False)
    return done.stdout.split(), done.stderr.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("ingest: {dataset: coco}\nsources: {sbert: {}, mine: {source: sbert}}\n")
    for folder in ("labels/pets/corpus", "labels/pets/encodings/test/cider", "other/cars/corpus"):
        Path(folder).mkdir(parents=True)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("relabel run --label ", ["sbert", "mine", "cider"]),
        ("relabel run -q -l c", ["cider"]),
        ("relabel export lookup --label sbert,ci", ["sbert,cider"]),
        ("relabel nearest dog --dataset ", ["coco", "pets"]),
        ("relabel encode --labels other --dataset c", ["coco", "cars"]),
        ("relabel correlate --split v", ["val"]),
        ("relabel run --params nowhere.yaml --dataset ", ["pets"]),
    ],
)
def test_values_are_completed_without_an_import(words: str, values: list[str], project: None) -> None:
    assert complete(words) == (values, "[]")


@pytest.mark.parametrize("content", [b"sources: [", b"- a", b"\xff\xfe", b"sources: 3"])
def test_a_damaged_file_completes_nothing(content: bytes, project: None) -> None:
    Path("params.yaml").write_bytes(content)
    assert complete("relabel run --label ") == ([], "[]")
    assert complete("relabel run --split a")[0] == ["all"]


def test_words_for_splits_and_mistyped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("three.csv").write_text("image_id,split,text\na,val,a dog\nb,test,two cats\n")
    setting = ["--set", "sources.cider.tokenizer=lower_split", "--label", "cider"]
    assert invoke("ingest", "--path", "three.csv", "--dataset", "three")[0] == 0
    for word in ("validation", "dev", "valid"):
        assert invoke("encode", "--split", word, *setting)[0] == 0
        assert [folder.name for folder in Path("labels/three/encodings").iterdir()] == ["val"]
    code, output = invoke("encode", "--split", "vall", *setting)
    assert (code, "no split 'vall'. Did you mean val" in output) == (2, True)
    code, output = invoke("neighbours", "--candidates", "vall", *setting)
    assert (code, "no split 'vall'. Did you mean val" in output) == (2, True)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("thre", "Did you mean --dataset three or three.csv?"),
        ("three.cvs", "Did you mean three.csv"),
        ("in/twoo.json", "Did you mean in/two.json"),
        ("flickr30", "Did you mean --dataset flickr30k?"),
        ("zzz", "Pass a file, a folder or a URL"),
    ],
)
def test_a_mistyped_file_or_dataset_gets_the_nearest_name(
    word: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("three.csv", "in/two.json", "labels/three/corpus/manifest.json"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    code, output = invoke("run", word)
    assert (code, told in output) == (3, True), output
