"""Description of a corpus, which `relabel ingest` prints and records in the manifest."""

from __future__ import annotations

from typing import Any

import numpy as np

from relabel.corpus.build import SPLITS, CaptionRows


def describe(captions: CaptionRows) -> dict[str, Any]:
    """Describe a corpus: `images` and `captions` in total and in `splits`, and the range of `captions_per_image`."""
    image, per_image = captions.image, np.bincount(captions.image)
    sizes = {
        split: {"images": int(image[rows.stop - 1] - image[rows.start]) + 1, "captions": len(rows)}
        for split, rows in captions.splits.items()
    }
    spread = [int(per_image.min()), int(per_image.max())]
    return {"images": len(per_image), "captions": len(image), "splits": sizes, "captions_per_image": spread}


def report_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a report as pairs of a title and a value, both formatted."""
    sizes = {split: report["splits"][split] for split in SPLITS if split in report["splits"]} | {"all": report}
    lines = [(name, f"{size['captions']:,} captions of {size['images']:,} images") for name, size in sizes.items()]
    lines.append(("captions per image", " to ".join(f"{count:,}" for count in report["captions_per_image"])))
    if skipped := report.get("skipped"):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        lines.append(("skipped", f"{sum(skipped.values()):,} records ({reasons})"))
    return lines
