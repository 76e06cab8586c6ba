"""Contract: `false-negatives` lists exactly the pairs of an image and another image's caption, among the neighbours of
the image's captions, whose relevance reaches the threshold, best first. The threshold is the least relevance at and
above which 80% of the judged pairs have a human score of 4 or more.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.published import WORDS, write_captions
from tests.relabel_cli.runner import invoke

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.datasets.cxc import human_scores
from relabel.judge import JudgeParams
from relabel.stages import Session, false_negatives, open_corpus
from relabel.stages.false_negatives import SHIPPED, Threshold, find_false_negatives, find_threshold, least_relevance


def pairs_of_a_loop(session: Session, label: str, threshold: float) -> tuple[list[tuple[float, int, int]], int]:
    """Return (-relevance, image, caption) of every pair, sorted, and the number of lists that are too short."""
    corpus, relevance = open_corpus(session), stages.open_label(session, label, "all")
    folder, found, cut = session.folder("neighbours", "all", "captions", label), set(), 0
    for row in pq.read_table(sorted(folder.glob("*.parquet"))).to_pylist():
        image = int(corpus.image[row["row"]])
        cut += row["scores"][-1] >= threshold
        for caption in row["neighbours"]:
            if corpus.image[caption] != image:
                own = References.of([np.flatnonzero(corpus.image == image)[:5].tolist()])
                found.add((-float(relevance.pairs(own, np.array([caption], np.int32))[0]), image, caption))
    return sorted(one for one in found if -one[0] >= threshold), cut


def closest_of_a_loop(session: Session, label: str, image: int, caption: int) -> int:
    """Return the row of the reference of an image that scores highest against a caption, the first one of ties."""
    relevance, best = stages.open_label(session, label, "all"), (-np.inf, -1)
    for row in np.flatnonzero(open_corpus(session).image == image)[:5].tolist():
        score = float(relevance.pairs(References.of([[row]]), np.array([caption], np.int32))[0])
        best = max(best, (score, row), key=lambda one: one[0])
    return best[1]


@pytest.mark.parametrize(("label", "threshold"), [("cbow", 0.9), ("cider", 1.0), ("cider", 10.0)])
def test_pairs_are_those_of_a_loop(label: str, threshold: float, small_project: Session) -> None:
    expected, cut = pairs_of_a_loop(small_project, label, threshold)
    assert bool(expected) == (threshold < 10)
    found = find_false_negatives(small_project, [label, "cider_plain", "same_image"], "all", Threshold(threshold))
    images, captions = np.divmod(found.keys, len(open_corpus(small_project)))
    ours = zip((-found.scores).tolist(), images.tolist(), captions.tolist(), strict=True)
    assert (list(ours), found.cut) == (expected, cut)
    assert found.described == len({caption for _, _, caption in expected})
    corpus, other = open_corpus(small_project), stages.open_label(small_project, "cider_plain", "all")
    records = list(found.records(slice(3)))
    assert len(records) == min(3, len(expected))
    for (score, image, caption), record in zip(expected, records, strict=False):
        exact = other.pairs(corpus.references([image]), np.array([caption], np.int32))[0]
        assert record[label] == pytest.approx(-score, abs=6e-5)
        assert record["cider_plain"] == pytest.approx(exact, abs=6e-5)
        assert record["same_image"] == 0
        assert (record["image_id"], record["caption_id"]) == (corpus.image_ids[image], corpus.caption_ids[caption])
        own = closest_of_a_loop(small_project, label, image, caption)
        assert (record["own_caption_id"], record["own_caption"]) == (corpus.caption_ids[own], corpus.texts[own])
        assert record["caption"] == corpus.texts[caption]
        assert record["caption_image_id"] == corpus.image_ids[corpus.image[caption]]
    closest = [closest_of_a_loop(small_project, label, image, caption) for _, image, caption in expected]
    texts = [record["own_caption"] for record in found.records()]
    assert texts == [corpus.texts[row] for row in closest]
    # A test of only first captions would hold no choice.
    assert threshold == 10 or any(row != corpus.indptr[corpus.image[row]] for row in closest)


def test_the_report_shows_pairs_of_the_whole_list(small_project: Session) -> None:
    found = find_false_negatives(small_project, ["cbow"], "all", Threshold(0.9))
    table, every = found.table(4), list(found.records())
    scores = [f"{one['cbow']:.3f}" for one in every]
    places = [scores.index(row[0]) for row in table.rows]
    assert len(table.rows) == 4
    assert places == sorted(places)
    assert places[-1] > len(every) // 2
    assert f"{found.described:,} of {len(found.rows):,}" in table.title
    listed = {(one["image_id"], one["caption_image_id"], " ".join(str(one["caption"]).split())) for one in every}
    assert {(*images[1:], row[2]) for images, row in zip(table.images, table.rows, strict=True)} <= listed


def test_a_notebook_shows_pairs_and_pandas_has_all(small_project: Session) -> None:
    found = find_false_negatives(small_project, ["cbow"], "all", Threshold(0.9))
    assert found._repr_html_().count("<tr>") == 11
    frame = found.to_pandas()
    assert (len(frame), frame["caption"][0]) == (len(found.keys), next(found.records())["caption"])


@pytest.mark.parametrize("threshold", [2, -1.5, float("nan")])
def test_a_threshold_that_no_pair_reaches_is_an_error(threshold: float, small_project: Session) -> None:
    with pytest.raises(UsageError, match=r"cbow never reaches .* --threshold from -1 to 1"):
        find_false_negatives(small_project, ["cbow"], "all", Threshold(threshold))


def test_the_threshold_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    none = 0
    for count in [0, 1, *rng.integers(2, 40, 300)]:
        relevance = rng.integers(0, 12, count) / 8  # many ties
        human = np.clip(relevance * 2 + rng.normal(2, 1, count), 0, 5).round(1)
        passed = []
        for level in relevance:
            scores = [h for r, h in zip(relevance, human, strict=True) if r >= level]
            share = sum(h >= 4 for h in scores) / len(scores)
            if share >= 0.8:
                passed.append((float(level), share, len(scores)))
        found = least_relevance(relevance, human)
        none += found is None
        assert (found and (found.relevance, found.precision, found.judged)) == (min(passed) if passed else None)
    assert 10 < none < 250


def test_human_scores_of_the_labels_own_pairs_give_its_threshold(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(false_negatives, "HUMAN", 3)
    monkeypatch.setattr(false_negatives, "PRECISION", 0.7)
    human = human_scores("sits", "val")
    every = list(zip(human.left, human.right, human.method, human.score, strict=True))
    image_of = {caption: image for caption, image, method, _ in every if method == "c2i_original"}
    others = [(c, i, score) for c, i, method, score in every if method != "c2i_original"]
    images = {image for caption, other, _ in others[:100] for image in (image_of[caption], other)}
    judged = [(c, i, score) for c, i, score in others if {image_of[c], i} <= images]
    rng, lines = np.random.default_rng(0), []
    for caption, image in ((c, i) for c, i in image_of.items() if i in images):
        ids = {"caption_id": caption[5:], "image_id": image[5:], "split": "val"}
        lines.append(json.dumps(ids | {"text": " ".join(rng.choice(WORDS, 8))}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    ingest = ["ingest.format=jsonl", "ingest.path=captions.jsonl", "ingest.expected={}"]
    config = load_config(None, [*ingest, "sources.cider.tokenizer=lower_split"])
    session = Session(config, Runtime(data=tmp_path, threads=1))
    stages.ingestion(session).run()
    with pytest.raises(UsageError, match=r"no threshold of cider .*--threshold"):
        find_threshold(session, "cider")
    stages.encoding(session, "cider", "val").run()
    on_val = session.config.model_copy(update={"judge": JudgeParams(split="val")})
    stages.judgement(replace(session, config=on_val), "cider").run()
    corpus, opened, scores = open_corpus(session), stages.open_label(session, "cider", "val"), []
    for caption, image, _ in judged:
        references = corpus.references([corpus.image_of[image]])
        scores.append(opened.pairs(references, np.array([corpus.row_of[caption]], np.int32))[0])
    found = find_threshold(session, "cider")
    assert found == least_relevance(np.array(scores), np.array([score for *_, score in judged]))
    assert found.relevance > min(scores)


def test_other_labels_have_the_shipped_threshold_of_their_parameters_or_none(
    small_project: Session, tmp_path: Path
) -> None:
    def threshold(label: str, *settings: str) -> Threshold:
        config = load_config(None, ["ingest.dataset=mine", "ingest.namespace=mine", *settings])
        return find_threshold(Session(config, Runtime(data=tmp_path), tmp_path), label)

    for source, shipped in SHIPPED.items():
        assert threshold(source) == shipped
        with pytest.raises(UsageError, match=rf"no threshold of {source} .*--threshold"):
            threshold(source, f"sources.{source}.pooling=first")
    with pytest.raises(UsageError, match=r"no threshold of cbow .*--threshold"):
        threshold("cbow")


def test_neighbours_must_exist(small_project: Session) -> None:
    with pytest.raises(MissingError, match="relabel neighbours --label cider_plain"):
        find_false_negatives(small_project, ["cider_plain"], "all", Threshold(1.0))
    config = small_project.config.model_copy(update={"sources": {}})
    with pytest.raises(UsageError, match="--label"):
        find_false_negatives(replace(small_project, config=config), [], "all", Threshold(1.0))


def test_the_command_prints_and_writes_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_captions(Path("captions.jsonl"))
    sources = "sources: {cider: {source: cider, tokenizer: lower_split}}"
    Path("params.yaml").write_text(f"ingest: {{format: jsonl, path: captions.jsonl, expected: {{}}}}\n{sources}\n")
    for verb in ("ingest", "encode --label cider --split val", "neighbours --label cider --candidates val"):
        assert invoke(*verb.split())[0] == 0
    command = ["false-negatives", "--split", "val", "--threshold", "0.5"]
    code, output = invoke(*command, "-k", "3", "--json", "--out", str(tmp_path / "pairs.csv"))
    assert code == 0, output
    data = json.loads(output)
    assert data["threshold"] == {"relevance": 0.5, "precision": None, "judged": None}
    with (tmp_path / "pairs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == data["pairs"] > 3
    assert len({row["caption_id"] for row in rows}) == data["captions_with_pairs"]
    assert [{name: str(value) for name, value in one.items()} for one in data["shown"]] == rows[:3]
    code, output = invoke(*command, "-k", "3")
    lines = output.splitlines()
    assert f"{data['captions_with_pairs']:,} of {data['captions']:,} captions" in lines[0]
    # Two lines per pair: the image with the caption that was matched, and the other caption, both in full.
    for pair, image, caption in zip(data["shown"], lines[-6::2], lines[-5::2], strict=True):
        assert image.split()[2:] == ["image", pair["image_id"], *pair["own_caption"].split()]
        assert caption.split() == ["caption", pair["caption_id"], *pair["caption"].split()]
