"""Contract: `false-negatives` lists exactly the pairs of an image and another image's caption, among the neighbours of
the image's captions, whose relevance reaches the threshold, best first. The threshold is the smallest relevance
to which the label's calibration gives a probability of 80%, or another one, of a human score of 4 or more.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.published import write_captions
from tests.relabel_cli.runner import invoke

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.stages import Session, open_corpus
from relabel.stages.calibrate import need_calibration
from relabel.stages.false_negatives import find_false_negatives, find_threshold


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
    found = find_false_negatives(small_project, [label, "cider_plain", "same_image"], "all", threshold=threshold)
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
    found = find_false_negatives(small_project, ["cbow"], "all", threshold=0.9)
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
    found = find_false_negatives(small_project, ["cbow"], "all", threshold=0.9)
    assert found._repr_html_().count("<tr>") == 11
    frame = found.to_pandas()
    assert (len(frame), frame["caption"][0]) == (len(found.keys), next(found.records())["caption"])


@pytest.mark.parametrize("threshold", [2, -1.5, float("nan")])
def test_a_threshold_that_no_pair_reaches_is_an_error(threshold: float, small_project: Session) -> None:
    with pytest.raises(UsageError, match=r"cbow never reaches .* --threshold from -1 to 1"):
        find_false_negatives(small_project, ["cbow"], "all", threshold=threshold)


@pytest.mark.parametrize("label", ["sbert", "cider", "meteor"])
@pytest.mark.parametrize("probability", [0.3, 0.5, 0.8])
def test_the_threshold_has_the_probability_and_less_relevance_has_less(
    label: str, probability: float, tmp_path: Path
) -> None:
    session = other_captions(tmp_path)
    curve = need_calibration(session, label).curve
    found = find_threshold(session, label, probability)
    assert curve.evaluate(found, "probability") == pytest.approx(probability)
    assert curve.evaluate(found - 1e-4, "probability") < probability - 1e-7
    assert (find_threshold(session, label) == found) == (probability == 0.8)


def test_a_probability_that_all_pairs_have_is_the_minimum_of_the_range(tmp_path: Path) -> None:
    session = other_captions(tmp_path)
    assert [find_threshold(session, label, 0.05) for label in ("cider", "meteor")] == [0.0, 0.0]
    assert find_threshold(session, "sbert", 0.0) == -1.0


def test_a_probability_above_the_curve_is_an_error_that_names_the_highest(tmp_path: Path) -> None:
    session = other_captions(tmp_path)
    highest = need_calibration(session, "cider").curve.probability[-1]
    assert 0.8 < highest < 0.9
    shown = f"{int(highest * 100) / 100:g}"
    with pytest.raises(UsageError, match=rf"cider .*0.9: its maximum is {shown}.*--probability up to {shown}") as error:
        find_threshold(session, "cider", 0.9)
    assert error.value.exit_code == 2
    assert find_threshold(session, "cider", float(shown)) > find_threshold(session, "cider", 0.8)


def test_a_label_without_a_calibration_needs_a_threshold(tmp_path: Path, small_project: Session) -> None:
    with pytest.raises(UsageError, match=r"cbow has no calibration.*relabel correlate"):
        find_threshold(other_captions(tmp_path), "cbow")
    with pytest.raises(UsageError, match=r"probability and threshold are mutually exclusive"):
        find_false_negatives(small_project, ["cbow"], "all", 0.5, 0.9)


def other_captions(folder: Path) -> Session:
    """Return a session of captions that nobody judged."""
    return Session(load_config(None, ["ingest.dataset=mine", "ingest.namespace=mine"]), Runtime(data=folder), folder)


def test_neighbours_must_exist(small_project: Session) -> None:
    with pytest.raises(MissingError, match="relabel neighbours --label cider_plain"):
        find_false_negatives(small_project, ["cider_plain"], "all", threshold=1.0)
    config = small_project.config.model_copy(update={"sources": {}})
    with pytest.raises(UsageError, match="--label"):
        find_false_negatives(replace(small_project, config=config), [], "all", threshold=1.0)


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
    assert (data["threshold"], data["probability"]) == (0.5, None)
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
