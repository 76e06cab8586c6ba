"""Contract: the figures of the report equal an explicit loop over the captions."""

from __future__ import annotations

from collections import Counter

from relabel.corpus.build import Caption, arrange
from relabel.corpus.ingest import describe, report_lines


def test_report_equals_a_loop() -> None:
    captions = []
    for n in range(90):
        image = n // 7 if n < 60 else n // 4
        captions.append(Caption(f"d:{n}", f"d:{image}", "test" if image % 2 else "train", f"caption {n}"))
    split_of = {caption.image_id: caption.split for caption in captions}
    sizes = Counter(caption.image_id for caption in captions)
    report = describe(arrange(captions))
    assert (report["images"], report["captions"]) == (len(sizes), 90)
    assert report["splits"] == {
        split: {
            "images": sum(split_of[i] == split for i in sizes),
            "captions": sum(n for i, n in sizes.items() if split_of[i] == split),
        }
        for split in ("train", "test")
    }
    assert report["captions_per_image"] == [min(sizes.values()), max(sizes.values())]
    lines = dict(report_lines(report | {"skipped": {"failed": 2, "empty": 1}}))
    assert lines["all"] == f"90 captions of {len(sizes)} images"
    assert lines["captions per image"] == f"{min(sizes.values())} to {max(sizes.values())}"
    assert lines["skipped"] == "3 records (1 empty, 2 failed)"
