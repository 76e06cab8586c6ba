"""Contract: pairs of the charts are a seeded sample of the pairs that all labels scored, joined by id; agreement is
Spearman's rho, and the largest disagreements are those of a sort by difference of ranks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import rankdata, spearmanr

from relabel.corpus.table import Caption, Corpus
from relabel.judge.cxc import SCHEMA
from relabel.judge.cxc_report import PairScores
from relabel.page import judged_pairs
from relabel.page.captions import PageCaptions, choose_captions
from relabel.page.judged_pairs import judged_data

PAIRS = 300


@pytest.fixture(scope="module")
def captions() -> PageCaptions:
    captions = [Caption(f"coco:{i}", f"coco:1{i // 5:03d}", "test", f"caption {i}") for i in range(100)]
    corpus = Corpus.from_captions(captions)
    return choose_captions(corpus, range(len(corpus)))


def scored(label: str, seed: int, missing: int | None = None) -> PairScores:
    """Scores of caption-image pairs in a random order; the last pair is of an image that no corpus has."""
    rng, order = np.random.default_rng(5), np.random.default_rng(seed)
    caption, image = rng.integers(0, 100, PAIRS), rng.integers(0, 20, PAIRS)
    human = np.round(rng.random(PAIRS) * 5, 1)
    relevance = np.round(human / 5 + order.normal(0, 0.3, PAIRS), 2)
    images = [f"coco:1{i:03d}" for i in image]
    images[-1] = "coco:9999"
    mask = np.zeros(PAIRS, np.bool_)
    if missing is not None:
        mask[missing] = True
    table = pa.table(
        {
            "left": [f"coco:{i}" for i in caption],
            "right": images,
            "human": human,
            "method": pa.array(
                ["c2i_original" if c // 5 == i else "c2i_intrasim" for c, i in zip(caption, image, strict=True)]
            ).dictionary_encode(),
            "relevance": pa.array(relevance, mask=mask),
            "missing": pa.nulls(PAIRS, pa.string()).dictionary_encode(),
            "cluster": image.astype(np.int32),
        },
        schema=SCHEMA,
    )
    return PairScores(label=label, params={"source": label, "pooling": "max"}, split="test", tables={"sits": table})


def test_a_sample_holds_the_pairs_of_all_labels_by_id(captions: PageCaptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_pairs, "POINTS", 40)
    labels = [scored("a", 1), scored("b", 2, missing=3)]
    data = judged_data(labels, captions)["sits"]
    assert data["n"] == PAIRS - 2  # without the missing pair and the pair of another corpus
    sample = data["sample"]
    assert len(sample["human"]) == 40
    table = labels[0].tables["sits"].to_pylist()
    rows = {(r["left"], r["right"], r["human"]): i for i, r in enumerate(table)}
    corpus = captions.corpus
    for i in range(40):
        key = corpus.caption_ids[sample["left"][i]], corpus.image_ids[sample["right"][i]], sample["human"][i]
        row = rows[key]
        assert row not in (3, PAIRS - 1)
        assert sample["one_image"][i] == (table[row]["method"] == "c2i_original")
        for one in labels:
            expected = one.tables["sits"]["relevance"][row].as_py()
            assert sample["relevance"][one.label][i] == pytest.approx(expected, abs=1e-4)
    assert judged_data(labels, captions)["sits"]["sample"] == sample
    assert judged_data(labels, captions, seed=1)["sits"]["sample"] != sample


def test_agreement_is_spearmans_rho(captions: PageCaptions) -> None:
    labels = [scored("a", 1), scored("b", 2)]
    table = labels[0].tables["sits"]
    for subset, rho in judged_data(labels, captions)["sits"]["agreement"].items():
        chosen = np.arange(PAIRS - 1)
        if subset == "two_images":
            chosen = chosen[np.array(table["method"].to_pylist())[:-1] == "c2i_intrasim"]
        series = [one.tables["sits"]["relevance"].to_numpy()[chosen] for one in labels]
        series.append(table["human"].to_numpy()[chosen])
        for i in range(3):
            for j in range(3):
                assert rho[i][j] == pytest.approx(spearmanr(series[i], series[j]).statistic, abs=1e-4)


def test_the_largest_disagreements_are_those_of_a_sort(captions: PageCaptions) -> None:
    labels = [scored("a", 1), scored("b", 2)]
    data = judged_data(labels, captions)["sits"]["worst"]
    for one in labels:
        table = one.tables["sits"]
        x, y = table["relevance"].to_numpy()[:-1], table["human"].to_numpy()[:-1]
        gap = (rankdata(x) - rankdata(y)) / len(x)
        order = sorted(range(len(x)), key=lambda i: (-abs(gap[i]), i))[:50]
        worst = data[one.label]
        ids = [captions.corpus.caption_ids[i] for i in worst["left"]]
        assert ids == [table["left"][i].as_py() for i in order]
        assert worst["gap"] == pytest.approx([100 * gap[i] for i in order], abs=0.051)
        assert worst["human"] == y[order].tolist()
        assert worst["relevance"][one.label] == pytest.approx(x[order], abs=1e-4)


def test_the_mean_human_score_is_of_pairs_of_two_images(captions: PageCaptions) -> None:
    one = scored("a", 1)
    line = judged_data([one], captions)["sits"]["calibration"]["a"]
    other = np.array(one.tables["sits"]["method"].to_pylist()) == "c2i_intrasim"
    human = one.tables["sits"]["human"].to_numpy()[other]
    assert 10 <= len(line) <= 20
    assert min(h for _, h in line) >= human.min()
    assert [x for x, _ in line] == sorted(x for x, _ in line)
