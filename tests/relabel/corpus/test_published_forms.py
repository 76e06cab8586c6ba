"""Contract: published files of captions give the image, text and split of every caption. The captions are invented; the
shapes are those of

- VizWiz-Captions, https://vizwiz.org/tasks-and-datasets/image-captioning, CC BY 4.0;
- nocaps, https://nocaps.org/download (`nocaps_val_4500_captions.json`), CC BY 2.0;
- Localized Narratives, https://google.github.io/localized-narratives, CC BY 4.0;
- Conceptual 12M, https://github.com/google-research-datasets/conceptual-12m, free for any purpose;
- WIT, https://github.com/google-research-datasets/wit/blob/main/DATA.md, CC BY-SA 3.0;
- Visual Genome's regions, https://homes.cs.washington.edu/~ranjay/visualgenome/api_readme.html, CC BY 4.0.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.relabel.corpus.readers.reading import read

VIZWIZ_FLAGS = {"is_precanned": False, "is_rejected": False, "text_detected": True}
VIZWIZ = {
    "info": {"description": "captions of images by people who are blind", "license": {"name": "CC BY 4.0"}},
    "images": [
        {
            "file_name": f"VizWiz_val_0000000{n}.jpg",
            "vizwiz_url": "https://a.test",
            "id": 23431 + n,
            "text_detected": True,
        }
        for n in range(2)
    ],
    "annotations": [
        {"caption": text, "image_id": 23431 + n // 2, "id": 117155 + n} | VIZWIZ_FLAGS
        for n, text in enumerate(("a can of soup", "a red can", "a laptop"))
    ],
}
NOCAPS = {
    "licenses": [{"id": 0, "name": "CC BY 2.0", "url": "https://creativecommons.org/licenses/by/2.0/"}],
    "info": {"description": "nocaps validation dataset", "version": "0.1", "year": 2018},
    "images": [
        {"id": n, "open_images_id": name, "file_name": f"{name}.jpg", "domain": domain, "coco_url": "https://a.test"}
        | {"height": 1024, "width": 732, "license": 0, "date_captured": "2018-11-06 11:04:33"}
        for n, (name, domain) in enumerate((("0013ea20", "in-domain"), ("004e21eb", "out-domain")))
    ],
    "annotations": [
        {"image_id": 0, "id": 0, "caption": "A child plays a piano."},
        {"image_id": 0, "id": 1, "caption": "A girl and a piano."},
        {"image_id": 1, "id": 2, "caption": "A seal on a rock."},
    ],
}
NARRATIVES = [
    {"dataset_id": "mscoco_val2017", "image_id": "137576", "annotator_id": n, "caption": text}
    | {"timed_caption": [{"utterance": "In this", "start_time": 0.0, "end_time": 0.4}]}
    | {"traces": [[{"x": 0.2086, "y": -0.0533, "t": 0.022}]], "voice_recording": f"coco_val/coco_val_137576_{n}.ogg"}
    for n, text in ((93, "In this image there are cows standing on the sand."), (12, "Cows on a beach."))
]
CC12M = 'https://a.test/1.jpg\tA 5" pipe , and "a wrench\nhttps://a.test/2.jpg\t<PERSON> at the "Met"\n'
WIT_COLUMNS = (
    *("language", "page_url", "image_url", "page_title", "section_title", "hierarchical_section_title"),
    *("caption_reference_description", "caption_attribution_description", "caption_alt_text_description", "mime_type"),
    *("original_height", "original_width", "is_main_image", "attribution_passes_lang_id", "page_changed_recently"),
    *("context_page_description", "context_section_description"),
)
WIT = [
    {"language": "en", "image_url": "https://a.test/1.jpg", "caption_reference_description": "A plate, about 1750"},
    {"language": "de", "image_url": "https://a.test/1.jpg", "caption_reference_description": "Ein Teller"},
    {"language": "en", "image_url": "https://a.test/2.jpg", "caption_attribution_description": "English: a bowl"},
]
GENOME = [
    {
        "id": image,
        "regions": [
            {"region_id": 1382 + n, "width": 82, "height": 139, "image_id": image, "phrase": text, "y": 57, "x": 421}
            for n, text in enumerate(texts)
        ],
    }
    for image, texts in ((1, ["the clock is green", "shade along the street "]), (2, ["a car"]))
]


@pytest.mark.parametrize(
    ("name", "content", "params", "expected"),
    [
        ("annotations/val.json", json.dumps(VIZWIZ), {}, "23431 a can of soup|23431 a red can|23432 a laptop"),
        (
            "nocaps_val_4500_captions.json",
            json.dumps(NOCAPS),
            {},
            "0 A child plays a piano.|0 A girl and a piano.|1 A seal on a rock.",
        ),
        (
            "coco_val_captions.jsonl",
            "".join(f"{json.dumps(one)}\n" for one in NARRATIVES),
            {},
            "137576 In this image there are cows standing on the sand.|137576 Cows on a beach.",
        ),
        (
            "cc12m.tsv",
            CC12M,
            {"columns": ("url", "caption"), "quotes": False, "in_split": "val"},
            'https://a.test/1.jpg A 5" pipe , and "a wrench|https://a.test/2.jpg <PERSON> at the "Met"',
        ),
        (
            "wit_v1.val.all-00000-of-00010.tsv.gz",
            "\n".join("\t".join(row) for row in (WIT_COLUMNS, *([o.get(c, "") for c in WIT_COLUMNS] for o in WIT))),
            {"text_column": "caption_reference_description"},
            "https://a.test/1.jpg A plate, about 1750|https://a.test/1.jpg Ein Teller",
        ),
        (
            "region_descriptions.json",
            json.dumps(GENOME),
            {"text_column": "regions[].phrase", "image_id_column": "id", "in_split": "val"},
            "1 the clock is green|1 shade along the street |2 a car",
        ),
    ],
    ids=["VizWiz", "nocaps", "Localized Narratives", "CC12M", "WIT", "Visual Genome"],
)
def test_published_files(tmp_path: Path, name: str, content: str, params: dict[str, Any], expected: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    triples = [tuple(caption.split(" ", 1)) for caption in expected.split("|")]
    found = read(path, **params)
    assert [(caption.image_id, caption.text, caption.split) for caption in found] == [
        (f"d:{image}", text, "val") for image, text in triples
    ]
