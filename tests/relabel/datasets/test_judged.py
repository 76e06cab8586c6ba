"""Contract: each evaluation set of texts is found by the name of its module and read as its authors publish it. A
malformed line is named, and a set without its file names the command or folder for it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.datasets.evaluation_sets import Judgements, evaluation_set, set_names

CAPTIONS = "".join(f"{image}.jpg#{k}\t{image} caption {k} .\n" for image in "ab" for k in range(5))


def read(name: str, folder: Path, **files: str) -> Judgements:
    for file, text in files.items():
        (folder / file.replace("__", ".")).write_text(text)
    return evaluation_set(name).read(lambda file: folder / file)


def test_flickr8k_expert_excludes_the_images_own_captions(tmp_path: Path) -> None:
    lines = "a.jpg\tb.jpg#1\t1\t2\t1\na.jpg\ta.jpg#0\t4\t4\t4\nb.jpg\ta.jpg#2\t3\t4\t3\n"
    pairs = read("flickr8k-expert", tmp_path, Flickr8k__token__txt=CAPTIONS, ExpertAnnotations__txt=lines)
    assert pairs.candidates == ["b caption 1 .", "a caption 2 ."]
    assert pairs.references[0] == [f"a caption {k} ." for k in range(5)]
    assert pairs.clusters == ["a.jpg", "b.jpg"]
    assert pairs.ids == ["a.jpg b.jpg#1", "b.jpg a.jpg#2"]
    np.testing.assert_array_equal(pairs.ratings, [[1, 2, 1], [3, 4, 3]])


def test_flickr8k_cf_removes_the_judged_caption_from_the_references(tmp_path: Path) -> None:
    lines = "a.jpg\tb.jpg#1\t0.25\t1\t3\na.jpg\ta.jpg#0\t1\t3\t0\n"
    pairs = read("flickr8k-cf", tmp_path, Flickr8k__token__txt=CAPTIONS, CrowdFlowerAnnotations__txt=lines)
    assert [len(texts) for texts in pairs.references] == [5, 4]
    assert "a caption 0 ." not in pairs.references[1]
    np.testing.assert_array_equal(pairs.ratings, [[0.25], [1]])


@pytest.mark.parametrize(
    ("captions", "lines", "where", "message"),
    [
        (CAPTIONS, "a.jpg\tb.jpg#1\t1\t2\n", "ExpertAnnotations.txt:1", "expected the columns"),
        (CAPTIONS, "a.jpg\tb.jpg#7\t1\t2\t3\n", "ExpertAnnotations.txt:1", "no captions of 'b.jpg#7'"),
    ],
)
def test_a_malformed_line_of_flickr8k_is_named(
    tmp_path: Path, captions: str, lines: str, where: str, message: str
) -> None:
    with pytest.raises(CheckError, match=message) as error:
        read("flickr8k-expert", tmp_path, Flickr8k__token__txt=captions, ExpertAnnotations__txt=lines)
    assert str(error.value.where).endswith(where)


def test_vsts_and_sick(tmp_path: Path) -> None:
    header = "id\tsource\tsent1\timage1\tsent2\timage2\tsim\n"
    row = "coco-1\tcoco\ta dog\tx.jpg\ta puppy\ty.jpg\t4.6\n"
    pairs = read("vsts", tmp_path, **{"visual_sts.v2.0.all.tsv": header + row + "\n"})
    assert (pairs.references, pairs.candidates, pairs.groups) == ([["a dog"]], ["a puppy"], ["coco"])
    assert pairs.both_orders
    assert pairs.ids == ["coco-1"]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    pairs = read("sick", tmp_path, SICK_test_annotated__txt=header + "6\ta dog\ta puppy\t3.3\tNEUTRAL\n")
    np.testing.assert_array_equal(pairs.ratings, [[3.3]])
    with pytest.raises(CheckError, match="expected the columns pair_ID") as error:
        read("sick", tmp_path, SICK_test_annotated__txt=row)
    assert str(error.value.where).endswith(":1")
    with pytest.raises(CheckError, match="a number in relatedness_score") as error:
        read("sick", tmp_path, SICK_test_annotated__txt=header + "6\ta dog\ta puppy\thigh\tNEUTRAL\n")
    assert str(error.value.where).endswith(":2")


def test_pascal_50s_puts_the_better_caption_first(tmp_path: Path) -> None:
    entry = {"image": "i.jpg", "captions": ["one", "two"], "label": 1, "references": ["r"] * 5}
    body = {kind: [entry] for kind in ("HC", "HI", "HM", "MM")}
    pairs = read("pascal-50s", tmp_path, pascal_50s__json=json.dumps(body))
    assert pairs.choices is not None
    assert pairs.choices.tolist()[:2] == [[[1, 0]], [[3, 2]]]
    assert pairs.groups == ["HC", "HI", "HM", "MM"]
    assert pairs.ids[:3] == ["HC:0:0", "HC:0:1", "HI:0:0"]


def test_sugarcrepe_compares_the_positives_with_the_negative(tmp_path: Path) -> None:
    entry = {"id": 0, "filename": "i.jpg", "caption": "p", "caption2": "q", "negative_caption": "n"}
    kinds = ("replace_obj", "replace_rel", "replace_att", "swap_att", "swap_obj")
    pairs = read("sugarcrepe-pp", tmp_path, **{f"{kind}__json": json.dumps([entry]) for kind in kinds})
    assert pairs.references[:3] == [["p"], ["p"], ["q"]]
    assert pairs.candidates[:3] == ["q", "n", "n"]
    assert pairs.choices is not None
    assert pairs.choices[1].tolist() == [[3, 4], [3, 5]]
    assert pairs.ids[:4] == [
        "replace_obj:0:positives", "replace_obj:0:caption", "replace_obj:0:caption2", "replace_rel:0:positives"
    ]  # fmt: skip


def test_stsb_separates_its_splits(tmp_path: Path) -> None:
    files = {"stsb-en-dev__csv": "a dog,a puppy,4.2\n", "stsb-en-test__csv": "a cat,a bird,1\na boat,a ship,4\n"}
    pairs = read("stsb", tmp_path, **files)
    assert pairs.groups == ["dev", "test", "test"]
    assert pairs.ids == ["dev:1", "test:1", "test:2"]
    assert (pairs.references[2], pairs.candidates[2]) == (["a boat"], "a ship")
    assert pairs.both_orders
    assert evaluation_set("stsb").group == "test"


def test_missing_names_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    with pytest.raises(UsageError, match=r"no evaluation set 'mine'"):
        evaluation_set("mine")
    for name in set_names():
        with pytest.raises(MissingError, match=f"relabel fetch {evaluation_set(name).dataset}"):
            evaluation_set(name).open(tmp_path)


@pytest.mark.parametrize(
    ("name", "pairs", "judged"),
    [("flickr8k-expert", 5664, 5664), ("vsts", 2677, 2677), ("sick", 4927, 4927), ("pascal-50s", 8000, 4000),
     ("stsb", 2879, 2879), ("sugarcrepe-pp", 14271, 4757)],
)  # fmt: skip
def test_the_published_files(mirror: Path, name: str, pairs: int, judged: int) -> None:
    if not (mirror / "judged").is_dir():
        pytest.skip("the mirror has no evaluation sets")
    opened_set = evaluation_set(name).open(Path("nowhere"))
    assert (len(opened_set.candidates), len(opened_set)) == (pairs, judged)
    assert len(opened_set.references) == pairs
    assert len(opened_set.clusters) == judged
    assert len(set(opened_set.ids)) == pairs
