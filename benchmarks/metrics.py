"""Retrieval metrics of 5,000 images and 25,000 captions compared with eccv_caption.

    python benchmarks/metrics.py [--threads N] [--full-lists]

eccv_caption takes ranked lists, so the sorting of its README and example is part of its time: `topk(50)` of each row
and column. It then computes COCO 1K, COCO 5K and CxC recalls and ECCV's R@K, mAP@R and R-Precision. A list of fifty
holds too few items of a fold for COCO 1K R@10, so that recipe is not exact; `--full-lists` passes complete lists,
which are. relabel computes the same figures, and median and mean rank and IR recall, from the score matrix. Figures
must agree within 1e-9 wherever the lists determine them. Scores are a signal with seeded noise, without ties among
relevant items. Times are medians of CPU seconds.
"""

from __future__ import annotations

import json
import warnings
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Table, alternate, clock, inside, options
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


def main() -> None:
    args = options(__doc__, threads=1, full_lists=False)
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", message="failed to import `ujson`")
    data = inside("eccv_caption", "data")
    images, captions, image = gallery(data)
    scores = np.random.default_rng(0).standard_normal((5000, 25000), np.float32)
    scores[image, np.arange(25000)] += 3
    ids = [[f"coco:{i}" for i in names] for names in (images, captions)]
    files = {n: [data / f"{n}_{w}.json" for w in ("image_to_caption", "caption_to_image")] for n in ("eccv", "cxc")}

    def ours() -> RetrievalReport:
        positives = {name: read_positives(*pair, *ids) for name, pair in files.items()}
        settings = ReportSettings(threads=args.threads)
        return retrieval_report(scores, image, positives=positives, folds=5, settings=settings)

    tensor = torch.from_numpy(scores)
    works = {"relabel": ours, "eccv_caption, top 50": lambda: theirs(tensor, images, captions, 50)}
    costs = alternate(works, args.repeats)  # type: ignore[arg-type]
    if args.full_lists:
        costs["eccv_caption, complete lists"] = clock(lambda: theirs(tensor, images, captions, None))
    mine = costs.pop("relabel")
    table = Table(f"Metrics of 5,000 x 25,000 scores, {args.threads} threads")
    for name, cost in costs.items():
        apart = differences(mine.result, cost.result)
        inexact = sorted(figure for figure, value in apart.items() if value > 1e-9)
        if not all("top 50" in name and figure.startswith("coco_1k") for figure in inexact):
            raise SystemExit(f"{name} and relabel differ: {apart}")
        table.add("COCO 1K and 5K, ECCV, CxC", "CPU s", mine.cpu, name, cost.cpu, inexact=" ".join(inexact))
    table.end("metrics", args.save, "numpy", "torch", "eccv-caption")


if __name__ == "__main__":
    main()
