"""Contract: results belong to the parameter file. A trial, which overrides the file by options or --set, neither
replaces a result nor is replaced by one unless --replace is given; the refusal suggests another label. Results
follow an edited file and changed captions. `nearest` excludes labels that cannot answer, with the reason.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.relabel_cli.runner import invoke

PARAMS = {
    "ingest": {"dataset": "mine", "format": "jsonl", "path": "captions.jsonl", "tokenizer": "none"},
    "neighbours": {"k": 5},
    "sources": {
        "cider": {"source": "cider", "tokenizer": "lower_split"},
        "words": {"source": "cbow", "vectors": "words.txt", "tokenizer": "lower_split"},
    },
}
WORDS = ["a", "dog", "cat", "bird", "on", "hill", "chair", "road", "bus", "one", "two"]
SIGMA = ("--set", "sources.cider.sigma=3")
OTHER = ("--set", "sources.words.vectors=other.txt")


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with parameters, 24 ingested images with captions, and two files of word vectors."""
    monkeypatch.chdir(tmp_path)
    write_params(PARAMS)
    write_captions(24)
    for seed, name in enumerate(("words.txt", "other.txt")):
        vectors = np.random.default_rng(seed).normal(size=(len(WORDS), 8))
        lines = [" ".join([word, *(f"{x:.4f}" for x in row)]) for word, row in zip(WORDS, vectors, strict=True)]
        Path(name).write_text("\n".join(lines) + "\n")
    assert relabel("ingest")[0] == 0
    return tmp_path


def write_params(params: object) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(params))


def write_captions(images: int) -> None:
    with Path("captions.jsonl").open("w", encoding="utf-8") as file:
        for row in range(2 * images):
            text = f"{WORDS[row % 2 + 9]} {WORDS[row % 3 + 1]} on a {WORDS[5 + row % 4]}" + " bus" * (row % 5)
            file.write(json.dumps({"caption_id": row, "image_id": row // 2, "split": "train", "text": text}) + "\n")


def relabel(*arguments: str) -> tuple[int, str]:
    return invoke(*arguments)


def done(*arguments: str) -> str:
    code, output = relabel(*arguments)
    assert code == 0, output
    return output


def refused(*arguments: str) -> str:
    """Run a command that must be refused and change no file; return its message."""
    before = files()
    code, output = relabel(*arguments)
    assert code == 2, output
    assert "--replace" in output
    assert files() == before
    return output


def files() -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path("labels").rglob("*") if p.is_file() and p.suffix != ".lock"}


def encode(label: str, *more: str) -> tuple[str, ...]:
    return ("encode", "--label", label, "--split", "train", *more)


def test_a_trial_needs_another_label() -> None:
    done(*encode("words"))
    before = files()
    output = refused(*encode("words", *OTHER))
    assert "sources.words.vectors (words.txt there, other.txt here)" in output
    advice = re.search(r"--label (\S+) (--set '.*?')\.", output)
    assert advice is not None
    assert advice[1] == "words-other"
    done(*encode(advice[1], *shlex.split(advice[2])))
    assert {name: body for name, body in files().items() if name in before} == before
    trained, trial = (
        json.loads(files()[f"labels/mine/encodings/train/{n}/manifest.json"]) for n in ("words", advice[1])
    )
    assert trained["semantic"]["vectors"]["name"] == "words"
    assert trial["semantic"]["vectors"]["name"] == "other"
    refused(*encode(advice[1], "--set", f"sources.{advice[1]}={{source: cbow, vectors: words.txt}}"))
    done(*encode("words", *OTHER, "--replace"))


def test_results_follow_an_edited_file_and_added_captions() -> None:
    trial = ("--set", "sources.trial={source: cider, tokenizer: lower_split, sigma: 2}")
    done(*encode("cider"))
    done(*encode("trial", *trial))
    write_params(PARAMS | {"sources": {"cider": {"source": "cider", "tokenizer": "lower_split", "sigma": 3}}})
    assert "built" in done(*encode("cider"))
    write_captions(25)
    done("ingest")
    assert "built" in done(*encode("cider"))
    assert "built" in done(*encode("trial", *trial))


def test_the_file_does_not_replace_a_trial() -> None:
    done(*encode("words", *OTHER))
    assert "of a trial" in refused(*encode("words"))
    assert "up to date" in done(*encode("words", *OTHER))
    done(*encode("words", "--replace"))
    assert "up to date" in done(*encode("words"))


def test_shards_of_another_size_are_a_trial() -> None:
    done(*encode("words"))
    assert "encode.rows_per_shard" in refused(*encode("words", "--set", "encode.rows_per_shard=7"))


def test_neighbours_of_another_k_or_index_are_a_trial() -> None:
    done(*encode("words"))
    done("neighbours", "--label", "words")
    assert "neighbours.k (5 there, 7 here)" in refused("neighbours", "--label", "words", "-k", "7")
    assert "neighbours.index" in refused("neighbours", "--label", "words", "--index", "Flat")
    done("neighbours", "--label", "words", "--of", "images", "-k", "7")
    done("neighbours", "--label", "words", "-k", "7", "--replace")
    refused("neighbours", "--label", "words")


def test_exports_of_other_parameters_are_a_trial() -> None:
    done(*encode("words"))
    lookup = ("export", "lookup", "--label", "words")
    done(*lookup)
    assert "export.lookup.dtype" in refused(*lookup, "--dtype", "float16")
    plan = ("export", "plan", "--label", "words", "--batch-size", "8", "--epochs", "1")
    done(*plan)
    assert "--name" in refused(*plan, "--batches", "3")
    done(*plan, "--batches", "3", "--name", "few")
    refused(*plan, "--batches", "2", "--name", "few")
    done(*plan, "--batches", "3", "--name", "few")


def test_a_side_car_of_other_options_is_a_trial() -> None:
    wds = ("export", "wds", "--label", "words")
    done(*encode("words"))
    done("export", "lookup", "--label", "words")
    done(*wds)
    code, output = relabel(*wds, "--captions-per-shard", "7")
    assert code == 2
    assert "export.wds.captions_per_shard" in output
    assert "--replace" in output
    assert relabel(*wds, "--captions-per-shard", "7", "--replace")[0] == 0


def test_a_dry_run_refuses_the_same_as_a_run() -> None:
    done("run", "--split", "train", "--label", "words")
    assert "sources.words.vectors" in refused("run", "--split", "train", "--label", "words", *OTHER, "--dry-run")


def test_nearest_excludes_stale_labels() -> None:
    for label in ("cider", "words"):
        done(*encode(label))
    nearest = ("nearest", "a dog on a hill", "--split", "train", "-k", "2")
    answers = done(*nearest)
    assert "left out" not in answers
    stale = done(*nearest, *SIGMA)
    assert "cider is left out: " in stale
    assert "relabel encode --label cider --split train" in stale
    assert "words is left out" not in stale
    assert "spice is left out" in done(*nearest, "--label", "spice", "--label", "words")
    code, output = relabel(*nearest, *SIGMA, *OTHER)
    assert code == 4
    assert "relabel encode" in output
