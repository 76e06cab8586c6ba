"""Contract: every figure of a report equals a loop over its definition, to 1e-9, under both rules for ties. Errors
name the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from relabel.stages import Session
from relabel_train.lookup import open_lookup
from relabel_train.metrics import LookupRelevance, ReportSettings, positives_of, retrieval_report

KS, MS, DIRECTIONS = (1, 3, 10), (1, 3), ("i2t", "t2i")
SETTINGS = ReportSettings("row", KS, KS, cs_ks=(6, 30), ndcg_ks=(None, 4), distance_ks=(1, 5), semantic_ms=MS)
Lists = list[tuple[list[float], list[float], list[int]]]


@dataclass(frozen=True)
class Case:
    """(M, N) scores and labels, and the image of each caption, -1 for none."""

    scores: NDArray[np.float64]
    labels: NDArray[np.float64]
    image: NDArray[np.int64]

    def part(self, rows: list[int], columns: list[int]) -> Case:
        at = np.ix_(rows, columns)
        return Case(self.scores[at], self.labels[at], np.array([rows.index(self.image[j]) for j in columns]))

    def lists(self) -> tuple[Lists, Lists]:
        """Return scores, labels and own items of each query: of images, then of captions."""
        image = self.image.tolist()
        captions_of = [[j for j, i in enumerate(image) if i == q] for q in range(len(self.scores))]
        images_of = [[i] if i >= 0 else [] for i in image]
        i2t = list(zip(self.scores.tolist(), self.labels.tolist(), captions_of, strict=True))
        return i2t, list(zip(self.scores.T.tolist(), self.labels.T.tolist(), images_of, strict=True))


@pytest.fixture(params=[0, 1, 2, 3])
def case(request: pytest.FixtureRequest) -> Case:
    """Return irregular data: ties, captions in random order and number; odd seeds have numbers beyond float32."""
    generator, odd = np.random.default_rng(request.param), request.param % 2
    scores = generator.integers(-6, 9, (12, 37)) / (7.0 if odd else 8.0)
    labels = np.clip(generator.integers(-4, 9, (12, 37)), 0, None) / (9.0 if odd else 8.0)
    image = generator.integers(0, 12, 37)
    image[image == 3] = 4  # image 3 has no caption
    image[[5, 20]] = -1
    image[:4] = [7, 2, 7, 0]  # images in random order
    scores[1, :], scores[:, 9], scores[6, 3], scores[0, :2] = 0.5, -0.25, -np.inf, [-0.0, 0.0]
    labels[2, :], labels[:, 11] = 0.0, 0.0  # constant labels, none above 0
    return Case(scores, labels, image)


@pytest.fixture(params=["pessimistic", "row"])
def ties(request: pytest.FixtureRequest) -> Any:
    return request.param


def order(scores: list[float], worth: list[float], ties: str, without: Sequence[int] = ()) -> list[int]:
    """Return items from best to worst."""
    second = worth if ties == "pessimistic" else [0.0] * len(worth)
    return sorted((j for j in range(len(scores)) if j not in without), key=lambda j: (-scores[j], second[j], j))


def ranked_hits(scores: list[float], relevant: list[int], ties: str, without: Sequence[int] = ()) -> list[bool]:
    worth = [float(j in relevant) for j in range(len(scores))]
    return [j in relevant for j in order(scores, worth, ties, without)]


def tau(x: list[float], y: list[float]) -> tuple[float, float]:
    """Compute tau-a and tau-b over pairs."""
    difference = left = right = 0
    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    for i, j in pairs:
        a, b = (x[i] > x[j]) - (x[i] < x[j]), (y[i] > y[j]) - (y[i] < y[j])
        difference, left, right = difference + a * b, left + abs(a), right + abs(b)
    return difference / len(pairs), difference / math.sqrt(left * right) if left * right else math.nan


def dcg(gains: list[float]) -> float:
    return sum(g / math.log2(place + 2) for place, g in enumerate(gains))


def graded(name: str, k: int | None, ties: str, s: list[float], r: list[float], own: list[int]) -> float:
    """Compute the metric `name` of one query from its scores, its labels and its own items."""
    without = own if name == "ncs_without_gt" else []
    best = order(s, r, ties, without)[:k]
    ranked = [r[j] for j in best]
    ideal = sorted((x for j, x in enumerate(r) if j not in without), reverse=True)[:k]
    if name.startswith("ndcg") and len(set(r)) == 1:  # any order of equal labels is ideal
        return math.nan
    if name.startswith("ncs"):
        return 100 * (sum(ranked) / len(ranked)) / (sum(ideal) / len(ideal) + 1e-10)
    if name == "cs":
        return tau([s[j] for j in best], ranked)[1]
    if name == "label_distance":
        return sum(1 - x for x in ranked) / len(ranked)
    if name == "ndcg_distance":
        return dcg([1 / (1 + 1 - x) for x in ranked]) / dcg([1 / (1 + 1 - x) for x in ideal])
    best_gain = dcg([2**x - 1 for x in ideal])
    return dcg([2**x - 1 for x in ranked]) / best_gain if best_gain else math.nan


def check(
    report: Any, name: str, sides: Sequence[Sequence[float]], scale: float = 1.0, tolerance: float = 1e-9
) -> None:
    """Compare a figure with the means of both directions' values, those that are defined."""
    for direction, values in zip(DIRECTIONS, sides, strict=True):
        defined = [scale * v for v in values if not math.isnan(v)]
        assert getattr(report[name], direction) == pytest.approx(sum(defined) / len(defined), abs=tolerance), name


def check_sum(report: Any, name: str, parts: str) -> None:
    figures = [report[parts.format(k)] for k in KS]
    assert report[name].both == pytest.approx(sum(f.i2t + f.t2i for f in figures), abs=1e-9)


def test_recalls_and_ranks(case: Case, ties: Any) -> None:
    report = retrieval_report(case.scores, case.image, settings=replace(SETTINGS, ties=ties))
    sides = [[(ranked_hits(s, own, ties), len(own)) for s, _, own in side if own] for side in case.lists()]
    ranks = [[hits.index(True) for hits, _ in side] for side in sides]
    for k in KS:
        check(report, f"all.r{k}_percent", [[r < k for r in side] for side in ranks], 100)
        check(report, f"all.ir_recall{k}_percent", [[sum(hits[:k]) / n for hits, n in side] for side in sides], 100)
    check_sum(report, "all.rsum_percent", "all.r{}_percent")
    check(report, "all.median_rank", [[math.floor(float(np.median(side))) + 1] for side in ranks])
    check(report, "all.mean_rank", [[r + 1 for r in side] for side in ranks])
    assert report["all.r1_percent"].queries == (11, 35)  # image 3 and captions 5 and 20 are no queries


def test_graded_labels(case: Case, ties: Any) -> None:
    report = retrieval_report(case.scores, case.image, relevance=case.labels, settings=replace(SETTINGS, ties=ties))
    expected: list[Any] = [(f"ncs{k}_percent", "ncs", k) for k in KS]
    expected += [(f"ncs{k}_without_gt_percent", "ncs_without_gt", k) for k in KS]
    expected += [(f"{name}{k or ''}", name, k) for name in ("ndcg", "ndcg_distance") for k in (None, 4)]
    expected += [("cs6", "cs", 6), ("cs30", "cs", 30)]
    expected += [("label_distance1", "label_distance", 1), ("label_distance5", "label_distance", 5)]
    for field, name, k in expected:
        sides = [[graded(name, k, ties, *lists) for lists in side] for side in case.lists()]
        check(report, f"labels.{field}", sides)
        assert report[f"labels.{field}"].skipped == tuple(sum(map(math.isnan, side)) for side in sides)
    taus = [[tau(s, r) for s, r, _ in side] for side in case.lists()]
    for place, letter in enumerate("ab"):
        check(report, f"labels.kendall_tau_{letter}", [[one[place] for one in side] for side in taus])
    for part in ("", "_without_gt"):
        check_sum(report, f"labels.nsum{part}_percent", f"labels.ncs{{}}{part}_percent")


def test_semantic_recall(case: Case, ties: Any) -> None:
    report = retrieval_report(case.scores, case.image, relevance=case.labels, settings=replace(SETTINGS, ties=ties))
    both = images, captions = case.lists()
    for m in MS:
        alike: list[list[int]] = []
        for i, (_, _, own_items) in enumerate(images):
            total: dict[int, float] = {}
            for caption in own_items:
                labels = captions[caption][1]
                for other in order(labels, labels, "row")[: max(KS)]:
                    total[other] = total.get(other, 0.0) + labels[other]
            alike.append(sorted((v for v in total if v != i), key=lambda v: (-total[v], v))[:m])
        paper: Any = [[(s, own + order(r, r, "row", own)[:m], []) for s, r, own in side if own] for side in both]
        more = [[j for v in near for j in images[v][2]] for near in alike]
        code: Any = [[(s, x, own) for (s, _, own), x in zip(images, more, strict=True) if own]]
        code.append([(s, alike[own[0]], own) for s, _, own in captions if own])
        for name, sides in (("semantic_recall", paper), ("semantic_recall_code", code)):
            hits = [[(ranked_hits(s, x, ties, without), len(x)) for s, x, without in side if x] for side in sides]
            for k in KS:
                shares = [[sum(of_query[:k]) / n for of_query, n in side] for side in hits]
                check(report, f"labels.{name}{k}_m{m}_percent", shares, 100)


def test_folds(case: Case) -> None:
    fold = np.arange(12) % 3
    for folds, group in ((fold, fold), (3, np.arange(12) // 4)):
        report = retrieval_report(case.scores, case.image, folds=folds, settings=replace(SETTINGS, ties="pessimistic"))
        recalls: dict[int, list[list[float]]] = {k: [[], []] for k in KS}
        for name in range(3):
            rows = np.flatnonzero(group == name).tolist()
            part = case.part(rows, [j for j, i in enumerate(case.image) if i in rows])
            for place, side in enumerate(part.lists()):
                ranks = [ranked_hits(s, own, "pessimistic").index(True) for s, _, own in side if own]
                for k in KS:
                    recalls[k][place].append(100 * sum(r < k for r in ranks) / len(ranks))
        for k in KS:
            check(report, f"folds.r{k}_percent", recalls[k])


def test_ncs_over_folds(case: Case, ties: Any) -> None:
    """Check that lists and ideal lists are those of the fold, and that folds of any size count alike."""
    fold = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    settings = replace(SETTINGS, ties=ties)
    report = retrieval_report(case.scores, case.image, relevance=case.labels, folds=fold, settings=settings)
    for k in KS:
        for name in ("ncs", "ncs_without_gt"):
            means: list[list[float]] = [[], []]
            for group in range(3):
                rows = np.flatnonzero(fold == group).tolist()
                part = case.part(rows, [j for j, i in enumerate(case.image) if i in rows])
                for place, side in enumerate(part.lists()):
                    values = [graded(name, k, ties, *lists) for lists in side]
                    means[place].append(sum(values) / len(values))
            # Lists of a fold may be shorter than K. They are padded on both sides of the ratio, which scales the 1e-10
            # in its denominator.
            check(report, f"folds.ncs{k}{name.removeprefix('ncs')}_percent", means, tolerance=1e-6)
    for part_name in ("", "_without_gt"):
        check_sum(report, f"folds.nsum{part_name}_percent", f"folds.ncs{{}}{part_name}_percent")
    assert report["folds.ncs1_percent"].queries == (12, 35)


def test_additional_positives(case: Case, ties: Any) -> None:
    i2t = {"i0": ["c1", "c7", "gone", "c30"], "i5": ["c2"], "i8": ["c5", "c5", "c6"], "i9": ["gone"], "i2": []}
    t2i = {"c4": ["i1", "i2"], "c5": ["i0"], "c36": ["nowhere", "i11", "i3"]}
    sets = positives_of(i2t, t2i, [f"i{i}" for i in range(12)], [f"c{j}" for j in range(37)])
    settings = replace(SETTINGS, ties=ties)
    report = retrieval_report(case.scores, case.image, positives={"eccv": sets}, settings=settings)
    values: dict[str, list[list[float]]] = {name: [[], []] for name in ("map_at_r", "r_precision", "r1", "r3", "r10")}
    for place, (content, side) in enumerate(zip((i2t, t2i), case.lists(), strict=True)):
        for query, ids in ((query, set(ids)) for query, ids in content.items() if ids):
            relevant = [int(x[1:]) for x in ids if x[1:].isdigit()]
            hits = ranked_hits(side[int(query[1:])][0], relevant, ties)
            best = hits[: len(ids)]
            precisions = [sum(best[: p + 1]) / (p + 1) for p in range(len(best)) if best[p]]
            values["map_at_r"][place].append(sum(precisions) / len(ids))
            values["r_precision"][place].append(sum(best) / len(ids))
            for k in KS:
                values[f"r{k}"][place].append(any(hits[:k]))
    for name, sides in values.items():
        check(report, f"eccv.{name}_percent", sides, 100)
    assert report["eccv.map_at_r_percent"].queries == (4, 3)


def test_ladder_protocol_takes_first_captions(case: Case) -> None:
    settings = replace(SETTINGS, one_caption=True, ties="pessimistic")
    report = retrieval_report(case.scores, case.image, relevance=case.labels, settings=settings)
    images = [i for i in range(12) if i != 3]
    part = case.part(images, [case.image.tolist().index(i) for i in images])
    values = [[graded("cs", 6, "pessimistic", *lists) for lists in side] for side in part.lists()]
    check(report, "one_caption.cs6", values)


def test_inputs_blocks_and_threads_change_no_figure(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    vectors = [generator.integers(-3, 4, (n, 6)).astype(np.float32) for n in (12, 37)]  # products are exact
    matrix, labels = vectors[0] @ vectors[1].T, case.labels.astype(np.float32)
    expected = retrieval_report(matrix, case.image, relevance=labels, folds=3).to_json()
    kinds: list[Any] = [
        (matrix.astype(np.float64), labels),
        (np.asfortranarray(matrix), np.asfortranarray(labels)),
        (torch.from_numpy(matrix).requires_grad_(), torch.from_numpy(labels)),
        (torch.from_numpy(matrix).to(torch.bfloat16), lambda images, captions: labels[np.ix_(images, captions)]),
        (tuple(vectors), lambda images, captions: torch.from_numpy(labels)[images][:, captions]),
        (tuple(torch.from_numpy(v).half() for v in vectors), labels),
        (tuple(v.astype(np.float64) for v in vectors), labels),
    ]
    for threads in (None, 1, 3):
        settings = ReportSettings(threads=threads)
        for scores, relevance in kinds:
            report = retrieval_report(scores, case.image, relevance=relevance, folds=3, settings=settings)
            assert report.to_json() == expected
        monkeypatch.setattr("relabel_train.metrics.scores._CELLS", 80)
        monkeypatch.setattr("relabel_train.metrics.scores._HELD", 0)


def test_tau_of_sampled_queries(case: Case) -> None:
    sampled = retrieval_report(case.scores, case.image, relevance=case.labels, settings=ReportSettings(tau_queries=5))
    assert sampled["labels.kendall_tau_a"].queries == (5, 5)
    assert sampled["labels.kendall_tau_a"].skipped == (7, 32)
    none = ReportSettings(kendall_tau=False)
    with pytest.raises(KeyError, match=r"kendall_tau_a.*there are all\.r1_percent"):
        retrieval_report(case.scores, case.image, relevance=case.labels, settings=none)["labels.kendall_tau_a"]


def test_a_wrong_value_is_named() -> None:
    zeros, two, hole, names = np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((2, 3)), "image_of_caption"
    hole[1, 2], beyond = np.nan, np.array([[0, 1, np.inf], [-np.inf, 0, 0]])
    large = np.full((2, 4), 1e30, np.float32), np.float32([[1e30, -1e30] * 2] * 3)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("scores: NaN at row 1, column 2", {"scores": hole}),
        ("relevance: NaN at row 1, column 2", {"relevance": hole}),
        ("relevance: NaN at row 1, column 2", {"relevance": lambda i, c: hole[np.ix_(i, c)]}),
        ("caption vectors: NaN at row 0, column 1", {"scores": (two, np.array([[0, np.nan]] * 3))}),
        ("vector of caption 2 ", {"scores": (two, np.array([[0, 1], [0, 1], [0, -np.inf]]))}),
        (r"scores: \+inf at row 0, column 2", {"scores": beyond}),
        (r"scores of images and captions: \+inf at row 0, column 0", {"scores": large}),
        ("label is -inf", {"relevance": -np.abs(beyond)}),
        ("label is -0.5, below label_low = 0", {"relevance": zeros - 0.5}),
        ("widths differ", {"scores": (two, np.zeros((3, 4)))}),
        ("pair", {"scores": (zeros, zeros, zeros)}),
        ("expected a matrix", {"scores": np.zeros(3)}),
        ("names 2", {names: [0, 1]}),
        ("caption 1 is of image 2; there are images 0 to 1", {names: [0, 2, 1]}),
        ("whole number", {names: [0.0, 1.0, 1.0]}),
        (r"relevance is \(3, 2\)", {"relevance": zeros.T}),
        ("label_top = 1", {"relevance": zeros + 9}),
        ("3 folds of one size", {"folds": 3}),
        (r"one per image is needed, \(2,\)", {"folds": [0, 1, 1]}),
    ]
    for named, given in wrong:
        with pytest.raises(ValueError, match=named):
            retrieval_report(**{"scores": zeros, names: [0, 1, 1], **given})


def test_the_smallest_label_is_named_and_rounding_is_none() -> None:
    cosines = np.random.default_rng(0).uniform(-1, 1, (4, 4))
    low = ReportSettings(label_low=-1.0)
    expected = retrieval_report(cosines, range(4), relevance=cosines, settings=low)
    rounded = retrieval_report(cosines, range(4), relevance=np.where(cosines > 0.9, 1 + 1e-6, cosines), settings=low)
    assert rounded["labels.ndcg"].i2t == pytest.approx(expected["labels.ndcg"].i2t)
    with pytest.raises(ValueError, match=r"below label_low = -0\.1"):
        retrieval_report(cosines, range(4), relevance=cosines, settings=ReportSettings(label_low=-0.1))


def test_settings_out_of_range_are_named() -> None:
    bad: dict[str, Any] = {"recall_ks": (0,), "cs_ks": (1.5,), "ndcg_ks": (-1,), "ties": "lucky", "threads": 0}
    for name, value in bad.items():
        with pytest.raises(ValueError, match=name):
            ReportSettings(**{name: value})


def test_no_queries() -> None:
    report = retrieval_report(np.zeros((2, 3)), [-1, -1, -1], relevance=np.zeros((2, 3)))
    figure: Any = report["all.r1_percent"]
    assert (math.isnan(figure.i2t), math.isnan(figure.t2i), figure.queries) == (True, True, (0, 0))
    assert report["labels.ndcg"].skipped == (2, 3)
    assert retrieval_report(np.zeros((0, 0)), np.zeros(0, np.int64))["all.r1_percent"].queries == (0, 0)


def test_invalid_positives_are_named() -> None:
    with pytest.raises(ValueError, match="query 'b' is not one of the images"):
        positives_of({"b": ["x"]}, {}, ["a"], ["x"])
    assert len(positives_of({"b": ["x"]}, {}, ["a"], ["x"], partial=True).i2t) == 0
    with pytest.raises(ValueError, match="caption id 'x' is given twice, at 0 and 2"):
        positives_of({}, {}, ["a"], ["x", "y", "x"])


@pytest.mark.parametrize("pooling", [None, "first"])
def test_labels_of_a_lookup_are_its_blocks(small_project: Session, pooling: Any) -> None:
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    rows = np.random.default_rng(0).permutation(len(lookup))[:40]
    _, first, image = np.unique(-lookup.image_of(rows), return_index=True, return_inverse=True)
    scores = np.random.default_rng(1).standard_normal((len(first), 40), np.float32)
    relevance = LookupRelevance(lookup, rows[first], rows, pooling)
    some = np.array([4, 0, 2]), np.array([7, 7, 0, 3])
    np.testing.assert_allclose(relevance(*some), lookup.block(rows[first], rows, pooling)[np.ix_(*some)], atol=1e-6)
    settings = ReportSettings(label_top=lookup.about.bounds[1])
    report = retrieval_report(scores, image, relevance=relevance, settings=settings)
    assert report["labels.ncs1_percent"].i2t != report["labels.ncs1_percent"].t2i
    with pytest.raises(ValueError, match="relevance is"):
        retrieval_report(scores[:-1], np.minimum(image, len(first) - 2), relevance=relevance)
