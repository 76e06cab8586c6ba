"""Retrieval metrics of 5,000 images and 25,000 captions compared with eccv_caption, and Kendall's tau with scipy.

    python benchmarks/metrics.py [--threads N] [--full-lists] [--graded]

eccv_caption takes ranked lists, so the sorting of its README and example is part of its time: `topk(50)` of each row
and column. It then computes COCO 1K, COCO 5K and CxC recalls and ECCV's R@K, mAP@R and R-Precision. A list of fifty
holds too few items of a fold for COCO 1K R@10, so that recipe is not exact; `--full-lists` passes complete lists, which
are. relabel computes the same figures, and median and mean rank and IR recall, from the score matrix. Figures must
agree within 1e-9 wherever the lists determine them. Scores are a signal with seeded noise, without ties among relevant
items. `--graded` adds relabel's metrics of graded labels, with and without Kendall's tau, and scipy's kendalltau on a
sample of queries. Versions run alternately; times are medians of CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import describe, machine, peak_gib, save, show
from numpy.typing import NDArray

from relabel_train.metrics import ReportSettings, RetrievalReport, read_positives, retrieval_report

NAMES = ("eccv_r1", "eccv_map_at_r", "eccv_rprecision", "coco_1k_recalls", "coco_5k_recalls", "cxc_recalls")
PROTOCOLS = {"coco_1k": "folds", "coco_5k": "all", "cxc": "cxc", "eccv": "eccv"}


def gallery(data: Path) -> tuple[list[int], list[int], NDArray[np.int64]]:
    captions = np.load(data / "coco_test_ids.npy").tolist()
    owner = json.loads((data / "original_caption_to_image.json").read_text())
    images = list(dict.fromkeys(owner[str(c)][0] for c in captions))
    place = {name: row for row, name in enumerate(images)}
    return images, captions, np.array([place[owner[str(c)][0]] for c in captions])


def theirs(scores: torch.Tensor, images: list[int], captions: list[int], k: int | None) -> dict[str, Any]:
    """Compute the metrics as the package's example does, with K = 50 or complete lists."""
    from eccv_caption import Metrics

    names = {"i2t": captions, "t2i": images}
    lists: dict[str, dict[int, list[int]]] = {}
    for side, query_ids, matrix in (("i2t", images, scores), ("t2i", captions, scores.T)):
        depth = k or len(names[side])
        # One int object per id, shared by all lists: 2 GiB instead of 10 for complete lists.
        lists[side] = {
            q: [*itemgetter(*matrix[i].topk(depth)[1].tolist())(names[side])] for i, q in enumerate(query_ids)
        }
    figures: dict[str, Any] = Metrics().compute_all_metrics(
        lists["i2t"], lists["t2i"], NAMES, (1, 5, 10), verbose=False
    )
    return figures


def differences(report: RetrievalReport, found: dict[str, Any]) -> dict[str, float]:
    """Return how far the peer's figures are from relabel's, in percentage points."""
    fields = {"eccv_map_at_r": "eccv.map_at_r_percent", "eccv_rprecision": "eccv.r_precision_percent"}
    out = {}
    for name in found:
        protocol, _, k = name.rpartition("_r")
        field = fields.get(name) or f"{PROTOCOLS[protocol]}.r{k}_percent"
        out[name] = max(abs(getattr(report[field], s) - 100 * found[name][s]) for s in ("i2t", "t2i"))
    return out


def cpu(work: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return seconds, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--full-lists", action="store_true", help="takes minutes and several GiB")
    parser.add_argument("--graded", action="store_true")
    parser.add_argument("--no-save", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", message="failed to import `ujson`")
    spec = find_spec("eccv_caption")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("eccv_caption is not installed")
    data = Path(next(iter(spec.submodule_search_locations))) / "data"
    images, captions, image = gallery(data)
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((5000, 25000), np.float32)
    scores[image, np.arange(25000)] += 3
    ids = [[f"coco:{i}" for i in names] for names in (images, captions)]
    settings = ReportSettings(threads=args.threads)

    def ours(**more: Any) -> RetrievalReport:
        files = {n: [data / f"{n}_{w}.json" for w in ("image_to_caption", "caption_to_image")] for n in ("eccv", "cxc")}
        positives = {name: read_positives(*pair, *ids) for name, pair in files.items()}
        return retrieval_report(scores, image, positives=positives, folds=5, **{"settings": settings, **more})

    tensor = torch.from_numpy(scores)
    works: dict[str, tuple[Callable[[], Any], int]] = {
        "relabel": (ours, args.repeats),
        "eccv_caption, top 50": (lambda: theirs(tensor, images, captions, 50), args.repeats),
    }
    if args.full_lists:
        works["eccv_caption, whole lists"] = (lambda: theirs(tensor, images, captions, None), 1)
    seconds_of: dict[str, list[float]] = {name: [] for name in works}
    results: dict[str, Any] = {}
    for turn in range(args.repeats):
        for name, (work, repeats) in works.items():
            if turn < repeats:
                (seconds,), results[name] = cpu(work, 1)
                seconds_of[name].append(seconds)
    rows = []
    for name, seconds_all in seconds_of.items():
        row: dict[str, Any] = {"name": name, "seconds": statistics.median(seconds_all), "all_seconds": seconds_all}
        if name != "relabel":
            row["differences"] = differences(results["relabel"], results[name])
            wrong = {n for n, d in row["differences"].items() if d > 1e-9}
            if wrong - ({"coco_1k_r1", "coco_1k_r5", "coco_1k_r10"} if "top" in name else set()):
                raise SystemExit(f"{name} and relabel differ: {row['differences']}")
            row["inexact"] = sorted(wrong)
        rows.append(row)
    table = [
        [r["name"], f"{r['seconds']:.2f}", f"{r['seconds'] / rows[0]['seconds']:.1f}", ", ".join(r.get("inexact", []))]
        for r in rows
    ]
    title = f"Metrics of 5,000 x 25,000 scores, {args.threads} threads"
    show(title, ["", "CPU s", "times relabel", "inexact figures"], table)
    body: dict[str, Any] = {"title": title, "rows": rows}
    if args.graded:
        body["graded"] = graded(scores, image, settings)
    facts = machine("numpy", "torch", "eccv-caption")
    print(f"{describe(facts)}\npeak {peak_gib():.1f} GiB")
    if not args.no_save:
        print(save("metrics", body | {"machine": facts, "peak_gib": peak_gib()}))


def graded(scores: NDArray[np.float32], image: NDArray[np.int64], settings: ReportSettings) -> list[dict[str, Any]]:
    """Measure the metrics of graded labels, and scipy's tau on one query in a hundred."""
    from dataclasses import replace

    from scipy.stats import kendalltau

    from relabel_train.metrics import kendall_tau

    generator = np.random.default_rng(1)
    labels = np.clip(scores / 9 + generator.random(scores.shape, np.float32) / 3, 0, 1)
    labels[image, np.arange(len(image))] = 1
    plans = {
        "everything": settings,
        "without Kendall's tau": replace(settings, kendall_tau=False),
        "without tau, nDCG at 100": replace(settings, kendall_tau=False, ndcg_ks=(100,)),
    }
    rows = [
        {
            "name": name,
            "seconds": cpu(lambda p=plan: retrieval_report(scores, image, relevance=labels, settings=p), 1)[0][0],
        }
        for name, plan in plans.items()
    ]
    ratios = []
    for side, queries in (("i2t", slice(0, None, 100)), ("t2i", slice(0, None, 100))):
        x, y = (np.ascontiguousarray((m if side == "i2t" else m.T)[queries]) for m in (scores, labels))
        (mine,), (_, tau_b) = cpu(lambda x=x, y=y: kendall_tau(x, y), 1)
        (other,), expected = cpu(lambda x=x, y=y: [kendalltau(a, b).statistic for a, b in zip(x, y, strict=True)], 1)
        if not np.allclose(tau_b, expected, atol=1e-9, rtol=0):
            raise SystemExit("scipy's tau-b and relabel's differ")
        ratios.append({"name": f"tau, {side}", "ms": 1e3 * mine / len(x), "scipy_ms": 1e3 * other / len(x)})
    show("Graded labels", ["", "CPU s"], [[str(r["name"]), f"{r['seconds']:.2f}"] for r in rows])
    table = [[str(r["name"]), *(f"{r[c]:.2f}" for c in ("ms", "scipy_ms"))] for r in ratios]
    show("Kendall's tau of one query", ["", "ms", "scipy's ms"], table)
    return [*rows, *ratios]


if __name__ == "__main__":
    main()
