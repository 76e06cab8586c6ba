"""Contract: `import relabel` loads nothing heavy; its functions answer by ids and equal the stages they call."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.fuse.fixtures import linear_head, write_fuse_model

import relabel
from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.tables import Table
from relabel.corpus import References
from relabel.judge.report import Report
from relabel.sources.fuse.model import FuseModel, Part
from relabel.stages.verify import verify
from relabel_train.examples import write_lookup
from relabel_train.lookup import open_lookup
from relabel_train.scoring.fuse import Feature

TEXTS = {
    "a": ["a dog on a surfboard", "a wet dog surfs", "dog rides a wave"],
    "b": ["two cats on a sofa", "a cat sleeps", "cats on a couch"],
    "c": ["a dog sleeps on a sofa", "sleeping brown dog", "the dog naps"],
}
CIDER = {"sources.cider": {"source": "cider", "tokenizer": "lower_split"}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a dataset of nine captions, ingested through `import relabel`."""
    monkeypatch.chdir(tmp_path)  # a folder without params.yaml
    lines = [
        {"caption_id": f"{image}{i}", "image_id": image, "split": "test", "text": text}
        for image, texts in TEXTS.items()
        for i, text in enumerate(texts)
    ]
    Path("captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    corpus = relabel.ingest("labels/mine", "captions.jsonl", format="jsonl")
    assert len(corpus) == 9
    return Path("labels/mine")


@pytest.fixture
def labels(folder: Path) -> relabel.Label:
    return relabel.encode(folder, "cider", settings=CIDER)


def test_label_takes_captions_in_one_call(folder: Path, labels: relabel.Label) -> None:
    images = [image for image, texts in TEXTS.items() for _ in texts]
    one = relabel.label((images, list(chain(*TEXTS.values()))), "cider", tokenizer="lower_split")
    kept = relabel.label("captions.jsonl", "cider", out="labels/kept", tokenizer="lower_split")
    for made in (one, kept):
        assert (made.split, len(made.caption_ids)) == ("all", 9)
        np.testing.assert_array_equal(
            made.block(made.image_ids, made.caption_ids), labels.block(labels.image_ids, labels.caption_ids)
        )
    assert relabel.load("labels/kept", "cider", settings=CIDER).caption_ids == kept.caption_ids
    files = Path(one.session.labels)
    assert files.exists()
    del one, made
    gc.collect()  # a label may be part of a cycle
    assert not files.exists()


def test_label_of_one_split(folder: Path) -> None:
    rows = [{"image_id": split, "split": split, "text": f"a {split} dog"} for split in ("train", "val")]
    labels = relabel.label(rows, "cider", split="val", tokenizer="lower_split")
    assert (labels.split, labels.caption_ids) == ("val", ["captions:val#0"])
    with pytest.raises(UsageError, match="this caption is in split train, which is not encoded here"):
        labels.block(["captions:val"], labels.ids)


def test_tables_are_ingested_as_files_are(folder: Path) -> None:
    columns = {"caption_id": ["1", "2"], "image_id": ["a", "b"], "text": ["a dog", "two cats"]}
    manifest, states = Path("labels/tables/corpus/manifest.json"), set()
    for table in (columns, pa.table(columns), pa.table(columns).to_pandas().astype(object)):
        corpus = relabel.ingest("labels/tables", table)
        assert (corpus.caption_ids, corpus.texts) == (["tables:1", "tables:2"], columns["text"])
        states.add(manifest.stat().st_mtime_ns)
    assert len(states) == 1  # an equal table is finished work
    corpus = relabel.ingest("labels/tables", columns | {"text": ["a dog", "a cat"]})
    assert corpus.texts == ["a dog", "a cat"]
    assert not verify([Path("labels/tables")]).problems
    for wrong in (5, {"image_id": ["a"], "text": ["a dog", "a cat"]}):
        with pytest.raises(UsageError, match=f"type {type(wrong).__name__} are not a table"):
            relabel.ingest("labels/tables", wrong)
    own = Path("labels/tables/captions.parquet")
    pq.write_table(pa.table(columns), own)
    content = own.read_bytes()
    with pytest.raises(UsageError, match=r"captions\.parquet: the table would replace your own file"):
        relabel.ingest("labels/tables", columns)
    assert own.read_bytes() == content


ROWS: list[Any] = [  # a row of the caller, and its ids
    ({"image": "b", "text": ["cats", "", "a sofa"]}, ["d:b#0", None, "d:b#2"]),
    ({"image": "a10", "text": ["a dog"]}, ["d:a10#0"]),
    ({"image": "a9", "text": []}, []),
    ({"image": "a9", "text": None}, None),
    ({"image": "b", "text": ["cats"]}, ["d:b#3"]),
]


@pytest.mark.parametrize("duplicates", ["keep", "drop"])
def test_ids_follow_the_rows_of_the_caller(duplicates: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table, expected = [row for row, _ in ROWS], [ids for _, ids in ROWS]
    if duplicates == "drop":
        expected[-1] = [None]
    corpus = relabel.ingest("labels/d", table, duplicates=duplicates)
    assert corpus.ids == expected
    # One caption a row, in another order than that of the corpus, which a table in pandas and a file have as well.
    flat = {"image": ["b", "a10", "a9", "b"], "text": ["cats", "a dog", " ", "a sofa"]}
    frame = pa.table(flat).to_pandas()
    pq.write_table(pa.table(flat), "d.parquet")
    for captions in (flat, frame, "d.parquet"):
        labels = relabel.label(captions, "same_image", out=f"labels/{type(captions).__name__}/d")
        assert labels.ids == ["d:b#0", "d:a10#0", None, "d:b#1"]
        assert labels.ids != labels.caption_ids
    frame["caption_id"] = labels.ids
    shown = frame.dropna().set_index("caption_id")["text"]
    assert dict(shown) == dict(zip(labels.corpus.caption_ids, labels.corpus.texts, strict=True))
    Path("d.csv").write_text("image,text\nb,cats\n")
    with pytest.raises(UsageError, match=r"d\.csv: ids by row require a table"):
        _ = relabel.ingest("labels/csv", "d.csv").ids
    old = relabel.ingest("labels/d", table, duplicates=duplicates)
    relabel.ingest("labels/d", table[::-1], duplicates=duplicates)
    with pytest.raises(CheckError, match="the captions were replaced"):
        _ = old.ids


def test_a_text_of_several_images_has_an_id_of_each(tmp_path: Path) -> None:
    pairs = {"image": [["b", "c"], ["a"]], "text": ["cats", "a dog"]}
    assert relabel.ingest(tmp_path / "d", pairs).ids == [["d:b#0", "d:c#0"], "d:a#0"]


def test_import_loads_nothing_heavy() -> None:
    heavy = ("torch", "faiss", "numba", "sentence_transformers", "pyarrow", "pydantic")
    code = f"import sys, relabel; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_dir_lists_the_public_names() -> None:
    assert dir(relabel) == sorted(relabel.__all__)
    assert all(hasattr(relabel, name) for name in dir(relabel))


def test_neighbours_false_negatives_and_verification_are_those_of_the_stages(folder: Path) -> None:
    made = relabel.encode(folder, "cider", settings=CIDER)
    table = relabel.neighbours(folder, "cider", k=3, settings=CIDER)
    assert table.column_names == ["caption_id", "image_id", "neighbours", "neighbour_images", "scores", "same_image"]
    for row in table.to_pylist():
        nearest = made.nearest(row["caption_id"], k=3)
        assert row["neighbours"] == [hit.caption_id for hit in nearest]
        assert row["scores"] == pytest.approx([hit.score for hit in nearest])
    images = relabel.neighbours(folder, "cider", queries="images", settings=CIDER)
    assert images["image_id"].to_pylist() == made.image_ids
    wide = CIDER | {"neighbours.k": 3}
    pairs = relabel.false_negatives(folder, "cider", "test", threshold=0.1, settings=wide)
    frame = pairs.to_pandas()
    assert len(frame) == len(pairs.scores) > 0
    assert made.pairs(frame["image_id"].tolist(), frame["caption_id"].tolist()) == pytest.approx(
        frame["cider"].to_numpy(), abs=6e-5
    )
    assert not relabel.verify(folder).problems
    Path(folder, "corpus", "manifest.json").write_text("{}")
    assert [problem.fault for problem in relabel.verify(folder).problems] == ["damaged"]


@pytest.mark.parametrize("word", ["validation", "dev", "Valid", "val"])
def test_usual_words_name_a_split(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = relabel.ingest("labels/mine", [("a", "a dog"), ("b", "two cats")], in_split=word)
    assert list(corpus.splits) == ["val"]
    assert relabel.encode("labels/mine", "cider", word, settings=CIDER).split == "val"
    assert relabel.load("labels/mine", "cider", word, settings=CIDER).split == "val"
    config = load_config(None, [], {"judge.split": word, "neighbours.candidates": word})
    assert (config.judge.split, config.neighbours.candidates) == ("val", "val")


def test_notebooks_show_small_escaped_tables(labels: relabel.Label, tmp_path: Path) -> None:
    report = Report((Table("<b>", ("label", "r"), (("<script>", "1"),), ("x < y",)),), ({"label": "a", "r": 0.5},))
    assert "<td" in report._repr_html_()
    assert not any(part in report._repr_html_() for part in ("<script>", "x < y", "<b><b>"))
    assert report.to_pandas().to_dict("records") == [{"label": "a", "r": 0.5}]
    assert labels.corpus.to_pandas()["caption_id"].tolist() == labels.corpus.caption_ids
    for shown in (labels, labels.corpus, open_lookup(write_lookup(tmp_path / "example"))):
        html = shown._repr_html_()
        assert html.count("<table>") == 1
        assert len(html) < 3000
    assert ">9</td>" in labels._repr_html_()


def test_tables_without_pandas_name_the_package(labels: relabel.Label, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingError, match=r"pandas is not installed\. Run `pip install pandas`"):
        labels.corpus.to_pandas()


def test_a_plot_has_the_shares_of_own_and_other_captions(labels: relabel.Label) -> None:
    matplotlib.use("Agg")
    axes = labels.plot()
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["captions of one image", "captions of two images"]
    for patch in axes.patches:
        values, edges, _ = patch.get_data()
        assert values.sum() == pytest.approx(1)
        assert len(edges) == len(values) + 1
    assert labels.plot(axes) is axes


def test_block_is_the_relevance_of_each_image_and_caption(labels: relabel.Label) -> None:
    images, captions = ["mine:c", "mine:a"], ["mine:b1", "mine:a0", "mine:c2", "mine:a2"]
    block = labels.block(images, captions)
    corpus = labels.corpus
    for i, image in enumerate(images):
        references = corpus.references([corpus.image_of[image]])
        for j, caption in enumerate(captions):
            row = np.array([corpus.row_of[caption]], np.int32)
            assert block[i, j] == labels.relevance.pairs(references, row)[0]
    pairs = labels.pairs(images, captions[:2])
    np.testing.assert_array_equal(pairs, block[[0, 1], [0, 1]])


def test_nearest_equals_a_sort_by_id_and_by_text(labels: relabel.Label) -> None:
    corpus, row = labels.corpus, labels.corpus.row_of["mine:c0"]
    others = np.array([other for other in range(len(corpus)) if other != row], np.int32)
    scores = labels.relevance.block(References.single(np.array([row])), others, "first")[0].tolist()
    expected = sorted(zip((-score for score in scores), others.tolist(), strict=True))
    hits = [(corpus.row_of[hit.caption_id], hit.score, hit.same_image) for hit in labels.nearest("mine:c0", k=8)]
    assert hits == [(other, -score, corpus.image[other] == corpus.image[row]) for score, other in expected]
    first, *by_text = labels.nearest(text=corpus.texts[row], k=9)
    assert first.caption_id == "mine:c0"
    scores_of_text = {corpus.row_of[hit.caption_id]: hit.score for hit in by_text}
    assert scores_of_text == pytest.approx({other: score for other, score, _ in hits}, abs=1e-12)


def test_load_opens_the_only_split_and_equals_encode(folder: Path, labels: relabel.Label) -> None:
    opened = relabel.load(folder, "cider", settings=CIDER)
    assert opened.split == "test"
    ids = labels.image_ids, labels.caption_ids
    np.testing.assert_array_equal(opened.block(*ids), labels.block(*ids))
    assert repr(opened) == "<Label cider of mine (test): 9 captions, relevance 0 to 10>"


def test_usage_errors_are_named(folder: Path, labels: relabel.Label) -> None:
    cases: list[Any] = [
        (MissingError, "no corpus of dataset yours", relabel.load, "labels/yours", "cider"),
        (MissingError, "same_image is not encoded", relabel.load, folder, "same_image"),
        (UsageError, "no label 'cidr'", relabel.load, folder, "cidr"),
        (UsageError, "no image with", labels.block, ["mine:z"], ["mine:a0"]),
        (UsageError, "no encoded caption", labels.block, ["mine:a"], ["mine:a9"]),
        (UsageError, "sequence of ids", labels.block, "mine:a", ["mine:a0"]),
        (UsageError, "as many images as captions", labels.pairs, ["mine:a"], []),
        (UsageError, "caption ids are strings or integers, found float", labels.block, ["mine:a"], [0.5]),
        (UsageError, "no image with", labels.block, [7], [b"a0"]),
        (UsageError, "no parameter 'path'", partial(relabel.ingest, path="b.csv"), "labels/other", [("a", "a dog")]),
        (UsageError, "no parameter 'path'", partial(relabel.label, path="b.csv"), [("a", "a dog")], "cider"),
        (UsageError, "either a caption id or a text", labels.nearest),
        (UsageError, "at least 1", partial(labels.nearest, k=0), "mine:a0"),
        (UsageError, "same_image", relabel.Scorer, "same_image"),
        (UsageError, "no label 'sbrt'", relabel.score, "a dog", ["a cat"], "sbrt"),
        (UsageError, "Did you mean split", partial(relabel.label, spilt="val"), [("a", "a dog")], "cider"),
        (UsageError, "Did you mean text_column", partial(relabel.label, text_colum="x"), [("a", "a dog")], "cider"),
        (UsageError, "tokeniser", partial(relabel.score, tokeniser="ptb"), "a dog", ["a cat"], "cider"),
        (UsageError, "documents is an empty list", partial(relabel.Scorer, documents=[]), "cider"),
        (MissingError, "gone", partial(relabel.Scorer, documents="gone"), "cider"),
    ]
    for error, named, call, *given in cases:
        with pytest.raises(error, match=named):
            call(*given)


def test_score_is_cider_over_the_given_documents() -> None:
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    references = ["a dog on a surfboard", "a wet dog surfs"]
    captions = ["a surfing dog", "two cats", "a dog on a board"]
    documents = [["two cats on a sofa", "cats sleep"], ["a man on a board"], ["a dog sleeps"]]
    scores = relabel.score(references, captions, "cider", tokenizer="lower_split", documents=documents)
    # The tool counts the document frequencies of all sets that it is given and scores one candidate per set.
    for score, caption in zip(scores, captions, strict=True):
        oracle = scorer.CiderScorer()
        oracle += (caption, references)
        for document in documents:
            oracle += (document[0], document)
        assert score == pytest.approx(oracle.compute_score()[1][0], abs=1e-9)


@pytest.mark.parametrize(
    "source",
    [
        "cider",
        pytest.param("sbert", marks=pytest.mark.slow),
        pytest.param("meteor", marks=[pytest.mark.java, pytest.mark.slow]),
    ],
)
def test_a_scorer_gives_a_row_of_scores_per_set(source: str) -> None:
    more: Any = {"tokenizer": "lower_split"} if source == "cider" else {}
    scorer, captions = relabel.Scorer(source, documents=list(TEXTS.values()), **more), ["a wet dog", "A cat, asleep."]
    scores = scorer(list(TEXTS.values()), captions)
    for row, texts in zip(scores, TEXTS.values(), strict=True):
        # A model may round a text differently beside other texts.
        one = relabel.score(texts, captions, source, documents=list(TEXTS.values()), **more)
        for again in (row, scorer(texts, captions)):
            np.testing.assert_allclose(again, one, rtol=0, atol=1e-5 if source == "sbert" else 0)
    pairs = scorer.pairs(list(TEXTS.values())[:2], captions)
    np.testing.assert_allclose(pairs, scores.diagonal(), rtol=0, atol=1e-5 if source == "sbert" else 0)


def test_documents_of_a_scorer_are_those_of_a_folder(folder: Path, labels: relabel.Label) -> None:
    expected = labels.block(labels.image_ids, labels.caption_ids)
    for documents in (folder, folder / "corpus", labels.corpus, list(TEXTS.values())):
        for df in ("test", "encoded"):
            scorer = relabel.Scorer("cider", documents=documents, tokenizer="lower_split", df=df)
            np.testing.assert_allclose(scorer(list(TEXTS.values()), labels.corpus.texts), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("references", "captions", "named"),
    [
        ("a dog", ["a cat"], "references must be a list"),
        (["a dog"], "a cat", "captions must be a list"),
        ([], ["a cat"], "references is an empty list"),
        (["a dog"], [], "captions is an empty list"),
        ([["a dog"], []], ["a cat"], r"references\[1\] is an empty list"),
        ([["a dog"], "a cat"], ["a cat"], r"references\[1\] must be a list"),
        (["a dog", ["a cat"]], ["a cat"], r"references\[1\] must be a text"),
        (["a dog"], ["a cat", None], r"captions\[1\] must be a text"),
        (["a dog"], ["a cat", b"a dog"], r"captions\[1\] must be a text, found b'a dog'"),
        (["a dog"], ["a cat", "\ud800"], r"captions\[1\] must be a text"),
        ([["a dog"], ["a cat", " \n"]], ["a cat"], r"references\[1\]\[1\] is blank"),
        (3, ["a cat"], "references must be a list"),
    ],
)
def test_a_scorer_names_what_is_no_list_of_texts(references: Any, captions: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        relabel.Scorer("cider", tokenizer="lower_split")(references, captions)


def test_pairs_count_what_the_caller_gave() -> None:
    with pytest.raises(UsageError, match="as many references as captions, found 1 and 2"):
        relabel.Scorer("cider", tokenizer="lower_split").pairs([["a dog"]], ["x", "y"])


def test_an_empty_caption_scores_the_minimum(folder: Path) -> None:
    captions = ["a dog surfs", "", "two cats", " \n"]
    Path("words.txt").write_text("a 1 0\ndog 0 1\ncats 1 1\nsurfs -1 0\ntwo 0 -1\n")
    for low, source, more in ((0.0, "cider", {}), (-1.0, "cbow", {"vectors": "words.txt"})):
        scorer = relabel.Scorer(source, tokenizer="lower_split", **more)
        scores, given = scorer(["a dog", "a wet dog"], captions), scorer(["a dog", "a wet dog"], captions[::2])
        assert scores.tolist() == pytest.approx([given[0], low, given[1], low])
        assert scorer.pairs([["two cats"], ["a dog"], ["a dog"]], ["", "a dog", "cats"])[0] == low
    assert scorer(["a dog"], ["", " "]).tolist() == [-1.0, -1.0]
    assert scorer(["dogs"], ["birds"]).tolist() == [0.0]  # no known word at all


def test_cider_of_one_document_asks_for_documents(folder: Path) -> None:
    head = linear_head({Feature("cider_lower_split", "max"): 1.0})
    write_fuse_model(
        Path("fuse"), FuseModel({"cider_lower_split": Part("cider", False, {})}, {"set": head, "single": head})
    )
    text, lower = "a dog surfs", {"tokenizer": "lower_split"}
    scorer, fuse = relabel.Scorer("cider", **lower), relabel.Scorer("fuse", model="fuse")
    calls: list[Any] = [
        partial(relabel.score, text, text, "cider", **lower),
        partial(relabel.score, [text, "a dog"], ["a cat", "", "a cat"], "cider", **lower),
        partial(relabel.score, text, "a cat", "cider", documents=[text, [text]], **lower),
        partial(relabel.Scorer, "cider", documents=["a dog", "a dog"], **lower),
        partial(scorer.pairs, [[text]] * 3, [text] * 3),
        partial(fuse.pairs, [[text]], [text]),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"with only one document, .*every CIDEr score are 0.*documents="):
            call()
    line = json.dumps({"reference": text, "candidate": "a dog", "human": 1})
    Path("one.jsonl").write_text(f"{line}\n{line}\n")
    with pytest.raises(UsageError, match="with only one document"):
        relabel.correlate(relabel.encode(folder, "cider", settings=CIDER), on="one.jsonl")
    # Two captions are documents of each other, and a scorer may get another name.
    scorer.name = "mine"
    assert scorer([text], [text, "two cats"]).tolist() == pytest.approx([7.5, 0.0])
    assert relabel.score(text, text, "cider", documents=folder, **lower)[0] == pytest.approx(7.5)


def shared_words(references: list[list[str]], candidates: list[str]) -> list[int]:
    return [len(set(r[0].split()) & set(c.split())) for r, c in zip(references, candidates, strict=True)]


def test_a_function_and_a_label_are_judged_on_a_file(labels: relabel.Label) -> None:
    rated = ("a dog on a sofa", "a dog", 4), ("two cats", "a cat", 3), ("a dog", "two cats", 1), ("a boat", "a cat", 0)
    lines = [json.dumps({"reference": r, "candidate": c, "human": human}) for r, c, human in rated]
    Path("mine.jsonl").write_text("\n".join(lines))
    report, alone = (relabel.correlate(judged, on="mine.jsonl") for judged in ([labels, shared_words], shared_words))
    assert {record["label"] for record in report.records} == {"cider", "shared_words"}
    assert "shared_words" in str(report)
    figure, again = (
        [r for r in one.records if r["label"] == "shared_words" and r["task"] != "summary"] for one in (report, alone)
    )
    assert figure == again != []


def test_correlate_takes_the_parameters_of_the_command(labels: relabel.Label) -> None:
    rated = [("a dog", "a dog", 5), ("two cats", "a cat", 3), ("a dog", "two cats", 1), ("a dog", "a wet dog", 4)]
    lines = [json.dumps({"reference": r, "candidate": c, "human": human}) for r, c, human in rated]
    Path("mine.jsonl").write_text("\n".join(lines))
    counts = shared_words([[r] for r, _, _ in rated], [c for _, c, _ in rated])
    tau_c = pytest.importorskip("scipy.stats").kendalltau(counts, [h for _, _, h in rated], variant="c")[0]
    given: dict[str, Any] = {"statistic": "tau_c", "resamples": 0}
    for judged in (shared_words, [labels, shared_words]):
        report = relabel.correlate(judged, on=Path("mine.jsonl"), **given)
        (record,) = (r for r in report.records if r["label"] == "shared_words" and "tau_c" in r)
        assert record["tau_c"] == pytest.approx(tau_c)
    # The report of the parameter file is not replaced by one under options.
    assert not labels.session.folder("report").exists()
    cases: list[Any] = [
        ("statistic: Input should be .*'tau_b'.*found 'tau'", labels, "mine.jsonl", {"statistic": "tau"}),
        ("correlate.*: sead: no such parameter. Did you mean seed", labels, "mine.jsonl", {"sead": 1}),
        ("one dataset and one split", labels, "mine.jsonl", {"split": "val"}),
        ("one evaluation set", labels, [], {}),
        ("one evaluation set", [], "mine.jsonl", {}),
        ("must be opened labels, scorers or functions, found 'sbert'", "sbert", "mine.jsonl", {}),
        ("must be opened labels, scorers or functions, found 3", [labels, 3], "mine.jsonl", {}),
        ("not those of mine. Evaluate on a set of texts, with on and one of", labels, "cxc", {}),
    ]
    for said, judged, on, parameters in cases:
        with pytest.raises(UsageError, match=said):
            relabel.correlate(judged, on=on, **parameters)


def test_a_dataset_in_memory_is_sent_to_its_folder(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    with pytest.raises(UsageError, match=r"Dataset are not a table.*save_to_disk"):
        relabel.label(datasets.Dataset.from_list([{"image_id": "a", "text": "a dog"}]), "cider")


def test_faults_of_captions_in_memory_name_no_file_and_no_option() -> None:
    texts = ["a dog", "two cats"]
    cases: list[Any] = [
        (
            "^captions: 2 of 2 captions cannot be read: 2 caption that is not text",
            {"image_id": ["a", "b"], "text": [1, 2]},
        ),
        ("^captions: row 0: the image id is blank", {"image_id": ["  ", "b"], "text": texts}),
        ("^captions: no column of image ids.* Name the column with image_id_column", {"name": texts, "text": texts}),
        (r"appears twice \(first: captions: row 0\)", {"caption_id": [1, 1], "image_id": ["a", "b"], "text": texts}),
    ]
    for said, columns in cases:
        with pytest.raises(CheckError, match=said):
            relabel.label(columns, "cider", tokenizer="lower_split")
