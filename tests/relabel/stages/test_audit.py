"""Contract: an audit counts equal captions and false negatives as a loop does, and its corrected figures are those of a
loop over queries with the false negatives as further positives. Intervals contain the mean, and subsets of all images
are the split itself.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.published import write_captions
from tests.relabel_cli.runner import invoke

from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.judge.audit import clustered_means, compare_positives, corrected_positives, equal_captions, growth
from relabel.judge.runs import Run
from relabel.stages import Session, open_corpus
from relabel_train.metrics import open_scores

TEXTS = {
    "train": [["a dog runs.", "A dog"], ["a cat"]],
    "val": [["a bus"], ["a red bus"]],
    "test": [["A dog runs", "a  cat!"], ["a cat", "A Bird."], ["a bird", "a cat"], ["new", "new"], ["a bus"]],
}


def test_equal_captions_are_those_of_a_loop() -> None:
    captions = [
        Caption(f"m:{split}{i}.{j}", f"m:{split}{i}", split, text, position=j)
        for split, images in TEXTS.items()
        for i, texts in enumerate(images)
        for j, text in enumerate(texts)
    ]
    corpus = Corpus.from_captions(captions)
    records, same = equal_captions(corpus, "test")

    def plain(text: str) -> str:
        return " ".join(re.sub(r"[^\w\s]", "", text.lower()).split())

    expected = []
    for other in ("test", "train", "val"):
        counts = []
        for form in (str.strip, plain):
            theirs = [
                (split, i, form(text)) for split in [other] for i, texts in enumerate(TEXTS[other]) for text in texts
            ]
            mine = [("test", i, form(text)) for i, texts in enumerate(TEXTS["test"]) for text in texts]
            counts.append(sum(any(t == text and (s, k) != (own, i) for s, k, t in theirs) for own, i, text in mine))
        expected.append({"compared_with": other, "captions": 9, "equal": counts[0], "equal_words": counts[1]})
    assert sorted(records, key=str) == sorted(expected, key=str)
    assert records[0] == {"compared_with": "test", "captions": 9, "equal": 2, "equal_words": 5}
    # Two images of test have a bird and a cat; one has the bus of val.
    assert same == 3


@pytest.fixture
def pairs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images and captions of 40 pairs, and the image of each of 60 captions of 20 images."""
    rng, owner = np.random.default_rng(0), np.repeat(np.arange(20), 3)
    every = [(m, n) for m in range(20) for n in range(60) if owner[n] != m]
    chosen = np.array([every[i] for i in rng.choice(len(every), 40, replace=False)])
    return chosen[:, 0], chosen[:, 1], owner


def test_growth_is_a_mean_over_subsets_and_ends_with_all_images(
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    image, caption, owner = pairs
    records = growth(image, caption, owner, sizes=(5, 10, 20, 1000))
    assert [record["images"] for record in records] == [5, 10, 20]
    described = len({*caption.tolist()})
    assert records[-1] == {"images": 20, "captions_with_pair_percent": round(100 * described / 60, 2), "pairs": 40}
    # A pair is in half of the images with probability 1/2 * 9/19.
    assert 4 < records[1]["pairs"] < 15
    assert records[0]["captions_with_pair_percent"] < records[1]["captions_with_pair_percent"] < 100 * described / 60


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_figures_are_those_of_a_loop(direction: str, pairs: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    image, caption, owner = pairs
    scores = np.random.default_rng(1).normal(size=(20, 60)) + 2 * (np.arange(20)[:, None] == owner)
    own = {(m, n) for n, m in enumerate(owner.tolist())}
    positive = {"usual": own, "corrected": own | {*zip(image.tolist(), caption.tolist(), strict=True)}}
    run = Run.complete(open_scores(scores), np.full(60, True))
    figures, queries, notes = compare_positives(run, corrected_positives(image, caption, owner), owner, 1)
    assert not notes
    best: dict[str, list[int]] = {}
    for kind, sets in positive.items():
        values: dict[str, list[float]] = {"R@1": [], "R@5": [], "R@10": [], "mAP@R": []}
        best[kind] = []
        for q in range(20 if direction == "i2t" else 60):
            row = scores[q] if direction == "i2t" else scores[:, q]
            mine = {n for m, n in sets if m == q} if direction == "i2t" else {m for m, n in sets if n == q}
            order = sorted(range(len(row)), key=lambda item: -row[item])
            hits = [item in mine for item in order]
            best[kind].append(hits.index(True) + 1)
            for k in (1, 5, 10):
                values[f"R@{k}"].append(100 * any(hits[:k]))
            precisions = [sum(hits[: k + 1]) / (k + 1) for k in range(len(mine)) if hits[k]]
            values["mAP@R"].append(100 * sum(precisions) / len(mine))
        for name, each in values.items():
            (record,) = (f for f in figures if (f["direction"], f["figure"]) == (direction, name))
            assert record[kind] == pytest.approx(np.mean(each), abs=0.006)
            low, high = record[f"{kind}_interval"]
            assert low <= record[kind] <= high
    listed = [query for query in queries if query["direction"] == direction]
    expected = {q: (a, b) for q, (a, b) in enumerate(zip(best["usual"], best["corrected"], strict=True)) if a > b}
    assert {query["query"]: (query["rank"], query["corrected_rank"]) for query in listed} == expected
    differences = [query["rank"] - query["corrected_rank"] for query in queries]
    assert differences == sorted(differences, reverse=True)
    assert differences[-1] > 0


def test_an_interval_covers_the_variation_between_images() -> None:
    """Compare with the standard error of independent images, each of 4 equal values."""
    values = np.random.default_rng(2).normal(size=400)
    (low, high) = clustered_means(np.repeat(values, 4)[:, None], np.repeat(np.arange(400), 4))[0]
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.1)
    assert low < values.mean() < high


def test_the_command_audits_a_split_and_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_captions(Path("captions.jsonl"))
    sources = "sources: {cider: {source: cider}, plain: {source: cider, tokenizer: lower_split}}"
    Path("params.yaml").write_text(f"ingest: {{format: jsonl, path: captions.jsonl, expected: {{}}}}\n{sources}\n")
    for verb in ("ingest", "encode --label plain --split val", "neighbours --label plain --candidates val"):
        assert invoke(*verb.split())[0] == 0
    command = ["audit", "--label", "plain", "--split", "val", "--probability", "0.2"]
    code, output = invoke(*command, "--json", "--out", "pairs.csv")
    assert code == 0, output
    data = json.loads(output)
    with Path("pairs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert data["pairs"] == len(rows) == data["growth"][-1]["pairs"] > 0
    captions, images = data["equal_captions"][0]["captions"], data["growth"][-1]["images"]
    share = data["captions_with_pair"]
    assert share["percent"] == round(100 * len({row["caption_id"] for row in rows}) / captions, 2)
    assert share["interval"][0] <= share["percent"] <= share["interval"][1]
    np.save("scores.npy", np.random.default_rng(0).normal(size=(images, captions)).astype(np.float32))
    code, output = invoke(*command, "--run", "scores.npy", "-k", "3", "--json")
    assert code == 0, output
    data = json.loads(output)
    assert [f["corrected"] >= f["usual"] for f in data["figures"] if "R@" in f["figure"][:2]] == [True] * 6
    assert len(data["queries"]) == 3
    code, output = invoke(*command, "--run", "scores.npy")
    assert f"{len(rows):,} pairs" in output
    assert "relabel export trec --label plain" in output
    np.save("turned.npy", np.zeros((captions, images)))
    np.save("nan.npy", np.full((images, captions), np.nan))
    Path("text.npy").write_text("0.5")
    wrong = {"turned": (2, f"expected ({images}, {captions})"), "nan": (4, "NaN"), "text": (4, "not a valid .npy file")}
    for name, (exit_code, said) in {**wrong, "none": (3, "no such file")}.items():
        code, output = invoke(*command, "--run", f"{name}.npy")
        assert (code, said in output) == (exit_code, True), output


def test_a_label_with_vectors_of_images_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_captions(Path("captions.jsonl"))
    sources = "plain: {source: cider, tokenizer: lower_split}"
    sources += ", clip: {source: precomputed, images: images.npy, captions: captions.npy}"
    sources += ", seen: {source: precomputed, images: images.npy}"
    ingest = "{format: jsonl, path: captions.jsonl, expected: {}}"
    Path("params.yaml").write_text(f"ingest: {ingest}\nsources: {{{sources}}}\n")
    assert invoke("ingest")[0] == 0
    session = Session(load_config(Path("params.yaml")), Runtime(), Path("labels"))
    table, rng, vectors = open_corpus(session).table, np.random.default_rng(0), {}
    for side in ("image", "caption"):
        ids = list(dict.fromkeys(table[f"{side}_id"].to_pylist()))
        vectors[side] = rng.normal(size=(len(ids), 8))
        np.save(f"{side}s.npy", vectors[side])
        Path(f"{side}s.ids.txt").write_text("\n".join(ids))
    unit = {side: values / np.linalg.norm(values, axis=1, keepdims=True) for side, values in vectors.items()}
    np.save("cosines.npy", unit["image"] @ unit["caption"].T)
    for verb in ("encode --label plain,clip --split val", "neighbours --label plain --candidates val"):
        assert invoke(*verb.split())[0] == 0
    command = ["audit", "--label", "plain", "--split", "val", "--probability", "0.2", "--json"]
    (code, output), (_, expected) = (invoke(*command, "--run", run) for run in ("clip", "cosines.npy"))
    assert code == 0, output
    assert json.loads(output)["figures"] == json.loads(expected)["figures"]
    for label, thing in (("plain", "caption with itself"), ("seen", "image with its own vector")):
        code, output = invoke(*command, "--run", label)
        assert (code, f"{label} cannot be a run: it would compare each {thing}" in output) == (2, True), output
