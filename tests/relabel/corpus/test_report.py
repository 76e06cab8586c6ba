"""Contract: the figures of the report equal an explicit loop over the captions."""

from __future__ import annotations

import json
import statistics
from collections import Counter

import pytest

from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.corpus.report import describe, report_lines

TEXTS = ["A dog .", "a  dog .", "a cat", "a cat", "the cat sat", "one", "dog a .", "A DOG ."]


def make(tokens: bool) -> Corpus:
    captions = []
    for n in range(90):
        image = n // 7 if n < 60 else n // 4
        split = "test" if image % 2 else "train"
        captions.append(Caption(f"d:{n}", f"d:{image}", split, TEXTS[(n * n + n // 5) % len(TEXTS)]))
    corpus = Corpus.from_captions(captions)
    return (
        corpus.with_tokens([" ".join(w for w in t.lower().split() if w != "one") for t in corpus.texts])
        if tokens
        else corpus
    )


@pytest.mark.parametrize("tokens", [False, True], ids=["lower_split", "ptb"])
def test_report_equals_a_loop(tokens: bool) -> None:
    corpus = make(tokens)
    images = corpus.table["image_id"].to_pylist()
    split_of = dict(zip(images, corpus.table["split"].to_pylist(), strict=True))
    sizes = Counter(images)
    words = corpus.tokens if corpus.tokens is not None else [" ".join(t.lower().split()) for t in corpus.texts]
    lengths = [len(w.split()) for w in words]
    report = describe(corpus)
    assert report["images"] == len(sizes)
    assert report["captions"] == 90
    assert report["splits"] == {
        split: {
            "images": sum(split_of[i] == split for i in sizes),
            "captions": sum(n for i, n in sizes.items() if split_of[i] == split),
        }
        for split in ("train", "test")
    }
    assert report["references"] == {
        "min": min(sizes.values()),
        "median": statistics.median(sizes.values()),
        "max": max(sizes.values()),
    }
    assert report["tokens"] == {
        "tokenizer": "ptb" if tokens else "lower_split",
        "total": sum(lengths),
        "min": min(lengths),
        "median": statistics.median(lengths),
        "max": max(lengths),
        "captions_without": lengths.count(0),
        "vocabulary": len({word for w in words for word in w.split()}),
    }
    assert (lengths.count(0) > 0) == tokens
    assert json.loads(json.dumps(report)) == report


def test_lines_state_the_figures() -> None:
    report = describe(make(tokens=True))
    lines = dict(report_lines(report))
    assert list(lines)[:3] == ["train", "test", "all"]
    assert lines["all"] == "90 captions of 17 images"
    assert lines["captions per image"] == "2 to 7, median 4"
    assert lines["tokens (ptb)"].startswith(f"{report['tokens']['total']:,}, {report['tokens']['vocabulary']} distinct")


def test_one_caption() -> None:
    report = describe(Corpus.from_captions([Caption("1", "1", "val", "a b")]))
    assert report["tokens"]["median"] == 2.0


def test_coco(coco: Corpus) -> None:
    report = describe(coco)
    assert (report["captions"], report["images"]) == (616_767, 123_287)
    assert report["references"] == {"min": 5, "median": 5.0, "max": 7}
