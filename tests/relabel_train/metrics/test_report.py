"""Contract: every figure of a report equals a loop over its definition, to 1e-9, under both rules for ties. Errors
name the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from relabel_train.metrics import Positives, ReportSettings, RetrievalReport, positives_of, retrieval_report

KS, CS, NDCG, FAR, MS = (1, 3, 10), (6, 30), (None, 4), (1, 5), (1, 3)
Lists = list[tuple[list[float], list[float], list[int]]]


def settings(ties: Any, **more: Any) -> ReportSettings:
    return ReportSettings(
        ties, recall_ks=KS, ncs_ks=KS, cs_ks=CS, ndcg_ks=NDCG, distance_ks=FAR, semantic_ms=MS, **more
    )


def order(scores: list[float], worth: list[float], ties: str, without: tuple[int, ...] = ()) -> list[int]:
    """Return items from best to worst."""
    second = (lambda j: worth[j]) if ties == "pessimistic" else (lambda j: 0.0)
    return sorted((j for j in range(len(scores)) if j not in without), key=lambda j: (-scores[j], second(j), j))


def percent(values: list[float]) -> float:
    return 100 * sum(values) / len(values)


def ranked_hits(scores: list[float], relevant: list[int], ties: str, without: tuple[int, ...] = ()) -> list[bool]:
    worth = [float(j in relevant) for j in range(len(scores))]
    return [j in relevant for j in order(scores, worth, ties, without)]


def ranks(lists: Lists, ties: str) -> list[int]:
    return [ranked_hits(s, own_items, ties).index(True) for s, _, own_items in lists if own_items]


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


def graded(name: str, k: int | None, ties: str) -> Callable[[list[float], list[float], list[int]], float]:
    """Compute the metric `name` of one query."""

    def take(s: list[float], r: list[float], own: list[int]) -> float:
        without = tuple(own) if name == "ncs_without_gt" else ()
        ranked = [r[j] for j in order(s, r, ties, without)][:k]
        ideal = sorted((x for j, x in enumerate(r) if j not in without), reverse=True)[:k]
        if name.startswith("ncs"):
            return 100 * (sum(ranked) / len(ranked)) / (sum(ideal) / len(ideal) + 1e-10)
        if name == "cs":
            best = order(s, r, ties)[:k]
            return tau([s[j] for j in best], [r[j] for j in best])[1]
        if name == "label_distance":
            return sum(1 - x for x in ranked) / len(ranked)
        if name == "ndcg_distance":
            return dcg([1 / (1 + 1 - x) for x in ranked]) / dcg([1 / (1 + 1 - x) for x in ideal])
        best_gain = dcg([2**x - 1 for x in ideal])
        return dcg([2**x - 1 for x in ranked]) / best_gain if best_gain else math.nan

    return take


def mean_of(values: list[float]) -> tuple[float, int]:
    defined = [v for v in values if not math.isnan(v)]
    return sum(defined) / len(defined), len(values) - len(defined)


def check(report: RetrievalReport, name: str, i2t: float, t2i: float) -> None:
    figure = report[name]
    assert figure.i2t == pytest.approx(i2t, abs=1e-9), name
    assert figure.t2i == pytest.approx(t2i, abs=1e-9), name


@pytest.mark.parametrize("ties", ["pessimistic", "row"])
def test_recalls_and_ranks(case: Any, ties: str) -> None:
    report = retrieval_report(case.scores, case.image, settings=settings(ties))
    ranks_by_direction = [ranks(case.lists(d), ties) for d in ("i2t", "t2i")]
    total = 0.0
    for k in KS:
        shares = [percent([float(r < k) for r in side]) for side in ranks_by_direction]
        check(report, f"all.r{k}_percent", *shares)
        total += sum(shares)
        ir = [
            percent([sum(ranked_hits(s, o, ties)[:k]) / len(o) for s, _, o in case.lists(d) if o])
            for d in ("i2t", "t2i")
        ]
        check(report, f"all.ir_recall{k}_percent", *ir)
    assert report["all.rsum_percent"].both == pytest.approx(total, abs=1e-9)
    check(report, "all.median_rank", *(math.floor(float(np.median(side))) + 1 for side in ranks_by_direction))
    check(report, "all.mean_rank", *(sum(side) / len(side) + 1 for side in ranks_by_direction))
    assert report["all.r1_percent"].queries == (11, 35)  # image 3 and captions 5 and 20 are no queries


@pytest.mark.parametrize("ties", ["pessimistic", "row"])
def test_graded_labels(case: Any, ties: str) -> None:
    report = retrieval_report(case.scores, case.image, relevance=case.labels, settings=settings(ties))
    expected = [(f"ncs{k}_percent", "ncs", k) for k in KS]
    expected += [(f"ncs{k}_without_gt_percent", "ncs_without_gt", k) for k in KS]
    expected += [(f"cs{k}", "cs", k) for k in CS]
    expected += [("ndcg", "ndcg", None), ("ndcg4", "ndcg", 4)]
    expected += [("ndcg_distance", "ndcg_distance", None), ("ndcg_distance4", "ndcg_distance", 4)]
    expected += [(f"label_distance{k}", "label_distance", k) for k in FAR]
    for field, name, k in expected:
        means = [mean_of([graded(name, k, ties)(*lists) for lists in case.lists(d)]) for d in ("i2t", "t2i")]
        check(report, f"labels.{field}", means[0][0], means[1][0])
        assert report[f"labels.{field}"].skipped == (means[0][1], means[1][1])
    for place, name in enumerate(("a", "b")):
        means = [mean_of([tau(s, r)[place] for s, r, _ in case.lists(d)]) for d in ("i2t", "t2i")]
        check(report, f"labels.kendall_tau_{name}", means[0][0], means[1][0])
    for part in ("", "_without_gt"):
        figures = [report[f"labels.ncs{k}{part}_percent"] for k in KS]
        total = sum((f.i2t or 0) + (f.t2i or 0) for f in figures)
        assert report[f"labels.nsum{part}_percent"].both == pytest.approx(total, abs=1e-9)
    assert report["labels.cs6"].skipped[0] >= 2  # image 1 has constant scores, image 2 constant labels


def paper_set(scores: list[float], labels: list[float], own: list[int], m: int) -> list[int]:
    ordered = sorted((j for j in range(len(labels)) if j not in own), key=lambda j: (-labels[j], j))
    return own + ordered[:m]


@pytest.mark.parametrize("ties", ["pessimistic", "row"])
def test_semantic_recall(case: Any, ties: str) -> None:
    report = retrieval_report(case.scores, case.image, relevance=case.labels, settings=settings(ties))
    images, captions = case.lists("i2t"), case.lists("t2i")
    for m in MS:
        alike: dict[int, list[int]] = {}
        for i, (_, _, own_items) in enumerate(images):
            total: dict[int, float] = {}
            for caption in own_items:
                labels = captions[caption][1]
                for other in sorted(range(len(images)), key=lambda v: (-labels[v], v))[: max(KS)]:
                    total[other] = total.get(other, 0.0) + labels[other]
            alike[i] = sorted((v for v in total if v != i), key=lambda v: (-total[v], v))[:m]
        for k in KS:
            paper, code = [], []
            for lists in (images, captions):
                sets = [(s, paper_set(s, r, o, m)) for s, r, o in lists if o]
                paper.append(percent([sum(ranked_hits(s, x, ties)[:k]) / len(x) for s, x in sets]))
            i2t = [(s, [j for v in alike[i] for j in images[v][2]], o) for i, (s, _, o) in enumerate(images) if o]
            t2i = [(s, alike[o[0]], o) for s, _, o in captions if o]
            for query_lists in (i2t, t2i):
                nonempty = [(s, x, tuple(o)) for s, x, o in query_lists if x]
                code.append(percent([sum(ranked_hits(s, x, ties, o)[:k]) / len(x) for s, x, o in nonempty]))
            check(report, f"labels.semantic_recall{k}_m{m}_percent", *paper)
            check(report, f"labels.semantic_recall_code{k}_m{m}_percent", *code)


def test_folds(case: Any) -> None:
    fold = np.arange(12) % 3
    for folds, group in ((fold, fold), (3, np.arange(12) // 4)):
        report = retrieval_report(case.scores, case.image, folds=folds, settings=settings("pessimistic"))
        for k in KS:
            means: list[list[float]] = [[], []]
            for name in range(3):
                rows = [i for i in range(12) if group[i] == name]
                columns = [j for j, i in enumerate(case.image.tolist()) if i in rows]
                part = type(case)(
                    case.scores[np.ix_(rows, columns)],
                    case.labels[np.ix_(rows, columns)],
                    np.array([rows.index(case.image[j]) for j in columns]),
                )
                for side, d in enumerate(("i2t", "t2i")):
                    means[side].append(percent([float(r < k) for r in ranks(part.lists(d), "pessimistic")]))
            check(report, f"folds.r{k}_percent", *(sum(side) / 3 for side in means))


@pytest.mark.parametrize("ties", ["pessimistic", "row"])
def test_additional_positives(case: Any, ties: str) -> None:
    i2t = {"i0": ["c1", "c7", "gone", "c30"], "i5": ["c2"], "i8": ["c5", "c5", "c6"], "i9": ["gone"], "i2": []}
    t2i = {"c4": ["i1", "i2"], "c5": ["i0"], "c36": ["nowhere", "i11", "i3"]}
    sets = positives_of(i2t, t2i, [f"i{i}" for i in range(12)], [f"c{j}" for j in range(37)])
    report = retrieval_report(case.scores, case.image, positives={"eccv": sets}, settings=settings(ties))
    values: dict[str, list[list[float]]] = {"map_at_r": [[], []], "r_precision": [[], []]} | {
        f"r{k}": [[], []] for k in KS
    }
    for side, (content, d) in enumerate(((i2t, "i2t"), (t2i, "t2i"))):
        for query, ids in content.items():
            relevant = [int(x[1:]) for x in set(ids) if x[1:].isdigit()]
            if not ids:
                continue
            hits, total = ranked_hits(case.lists(d)[int(query[1:])][0], relevant, ties), len(set(ids))
            hits += [False] * total
            values["map_at_r"][side].append(sum(sum(hits[: p + 1]) / (p + 1) for p in range(total) if hits[p]) / total)
            values["r_precision"][side].append(sum(hits[:total]) / total)
            for k in KS:
                values[f"r{k}"][side].append(float(any(hits[:k])))
    for name, sides in values.items():
        check(report, f"eccv.{name}_percent", *map(percent, sides))
    assert report["eccv.map_at_r_percent"].queries == (4, 3)


def test_ladder_protocol_takes_first_captions(case: Any) -> None:
    report = retrieval_report(
        case.scores, case.image, relevance=case.labels, settings=settings("pessimistic", one_caption=True)
    )
    images = [i for i in range(12) if i != 3]
    first = [case.image.tolist().index(i) for i in images]
    part = type(case)(case.scores[np.ix_(images, first)], case.labels[np.ix_(images, first)], np.arange(11))
    means = [mean_of([graded("cs", 6, "pessimistic")(*lists) for lists in part.lists(d)])[0] for d in ("i2t", "t2i")]
    check(report, "one_caption.cs6", *means)


def test_kinds_of_input_agree(case: Any) -> None:
    generator = np.random.default_rng(5)
    vectors = [generator.integers(-3, 4, (n, 6)).astype(np.float32) for n in (12, 37)]  # products are exact
    matrix, labels = vectors[0] @ vectors[1].T, case.labels.astype(np.float32)
    expected = retrieval_report(matrix, case.image, relevance=labels, folds=3).to_json()
    kinds = [
        (matrix.astype(np.float64), labels),
        (np.asfortranarray(matrix), np.asfortranarray(labels)),
        (torch.from_numpy(matrix).requires_grad_(), torch.from_numpy(labels)),
        (torch.from_numpy(matrix).to(torch.bfloat16), lambda images, captions: labels[np.ix_(images, captions)]),
        (tuple(vectors), lambda images, captions: torch.from_numpy(labels)[images][:, captions]),
        (tuple(torch.from_numpy(v).half() for v in vectors), labels),
        (tuple(v.astype(np.float64) for v in vectors), labels),
    ]
    for scores, relevance in kinds:
        assert retrieval_report(scores, case.image, relevance=relevance, folds=3).to_json() == expected


def test_neither_blocks_nor_threads_change_a_figure(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = retrieval_report(case.scores, case.image, relevance=case.labels, folds=3).to_json()
    monkeypatch.setattr("relabel_train.metrics.scores._CELLS", 80)
    monkeypatch.setattr("relabel_train.metrics.scores._HELD", 0)
    for threads in (1, 3):
        more = ReportSettings(threads=threads)
        figures = retrieval_report(
            case.scores,
            case.image,
            relevance=lambda images, captions: case.labels[np.ix_(images, captions)],
            folds=3,
            settings=more,
        )
        assert figures.to_json() == expected


def test_tau_of_sampled_queries(case: Any) -> None:
    sampled = ReportSettings(tau_queries=5, seed=3)
    report = retrieval_report(case.scores, case.image, relevance=case.labels, settings=sampled)
    assert report["labels.kendall_tau_a"].queries == (5, 5)
    assert report["labels.kendall_tau_a"].skipped == (7, 32)
    none = ReportSettings(kendall_tau=False)
    report = retrieval_report(case.scores, case.image, relevance=case.labels, settings=none)
    with pytest.raises(KeyError, match=r"kendall_tau_a.*there are all\.r1_percent"):
        report["labels.kendall_tau_a"]


def test_refusals() -> None:
    scores, image = np.zeros((2, 3)), [0, 1, 1]

    def refused(match: str, *args: Any, **more: Any) -> None:
        with pytest.raises(ValueError, match=match):
            retrieval_report(*args, **more)

    hole = scores.copy()
    hole[1, 2] = np.nan
    refused("scores: NaN at row 1, column 2", hole, image)
    refused("relevance: NaN at row 1, column 2", scores, image, relevance=hole)
    refused("relevance: NaN at row 1, column 2", scores, image, relevance=lambda i, c: hole[np.ix_(i, c)])
    refused("vector of caption 2 is not finite", (np.zeros((2, 2)), np.array([[0, 1], [0, 1], [0, -np.inf]])), image)
    refused(r"scores: \+inf at row 0, column 2", np.array([[0, 1, np.inf], [-np.inf, 0, 0]]), image)
    refused("a label is -inf", scores, image, relevance=np.array([[0, 1, -np.inf], [0, 0, 0]]))
    refused(
        r"scores of images and captions: \+inf at row 0, column 0",
        (np.full((2, 4), 1e30, np.float32), np.float32([[1e30, -1e30] * 2] * 3)),
        image,
    )
    refused("caption vectors: NaN at row 0, column 1", (np.zeros((2, 2)), np.array([[0, np.nan]] * 3)), image)
    refused("widths differ", (np.zeros((2, 2)), np.zeros((3, 4))), image)
    refused("pair", (scores, scores, scores), image)
    refused("expected a matrix", np.zeros(3), image)
    refused("names 2", scores, [0, 1])
    refused("caption 1 is of image 2; there are images 0 to 1", scores, [0, 2, 1])
    refused("whole number", scores, [0.0, 1.0, 1.0])
    refused(r"relevance is \(3, 2\)", scores, image, relevance=scores.T)
    refused("label_top = 1", scores, image, relevance=scores + 9)
    refused("3 folds of one size", scores, image, folds=3)
    refused(r"one per image is needed, \(2,\)", scores, image, folds=[0, 1, 1])
    for bad in ({"recall_ks": (0,)}, {"cs_ks": (1.5,)}, {"ndcg_ks": (-1,)}, {"ties": "lucky"}, {"threads": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            ReportSettings(**bad)  # type: ignore[arg-type]


def test_invalid_positives_are_named() -> None:
    sets = positives_of({"a": ["x"]}, {}, ["a"], ["x"])
    assert isinstance(sets, Positives)
    with pytest.raises(ValueError, match="query 'b' is no image"):
        positives_of({"b": ["x"]}, {}, ["a"], ["x"])
    assert len(positives_of({"b": ["x"]}, {}, ["a"], ["x"], partial=True).i2t) == 0
    with pytest.raises(ValueError, match="caption id 'x' is given twice, at 0 and 2"):
        positives_of({}, {}, ["a"], ["x", "y", "x"])
