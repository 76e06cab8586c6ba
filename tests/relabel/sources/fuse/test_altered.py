"""Contract: an altered copy has the caption's words but for one or two, exchanged or replaced; classes of words follow
from neighbours; copies depend on the captions and the seed alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from relabel.core.runtime import Runtime
from relabel.sources.fuse import altered
from relabel.sources.fuse.altered import alter_captions, classify_words, read_train_captions

CAPTIONS = [
    "A black cat on a white chair.",
    "A man sitting on a bench next to a dog",
    "Two large trucks are parked in a green field",
    "The woman holding an umbrella behind a red bus",
    "There is nothing",
    "a bowl with a spoon and three apples",
]


def test_copies_differ_by_one_or_two_words() -> None:
    copies = alter_captions(CAPTIONS * 20, 60, seed=1)
    assert len(copies) == 60
    kinds = Counter()
    for caption, copy in copies:
        before, after = caption.split(), copy.split()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert 1 <= len(changed) <= 2
        exchanged = sorted(before) == sorted(after)
        # A full stop stays at the end, so that an exchange may add it to another word.
        kinds["exchange" if exchanged or len(changed) == 2 else "replace"] += 1
    assert kinds == {"exchange": 30, "replace": 30}


def test_a_copy_depends_on_the_seed_alone() -> None:
    assert alter_captions(CAPTIONS * 9, 20, seed=3) == alter_captions(CAPTIONS * 9, 20, seed=3)
    assert alter_captions(CAPTIONS * 9, 20, seed=3) != alter_captions(CAPTIONS * 9, 20, seed=4)


def test_each_caption_is_altered_once() -> None:
    captions = [f"{count} red cups and a blue box on a cat of {count}" for count in map(chr, range(97, 123))]
    assert len({caption for caption, _ in alter_captions(captions, 10, seed=0)}) == 10


@pytest.mark.parametrize(
    ("caption", "wanted"),
    [
        ("a young man in a hat", [None, "False-True", "True-False", "relation", None, "False-False"]),
        ("three dogs playing .", [None, "False-True", "True-False", None]),
    ],
)
def test_classes_follow_from_neighbours(caption: str, wanted: list[str | None]) -> None:
    assert classify_words(caption.split()) == wanted


def test_captions_of_train_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train.json"
    annotations = [{"image_id": 7, "id": n, "caption": f"a dog {n}"} for n in range(3)]
    file.write_text(json.dumps({"images": [{"id": 7}], "annotations": annotations}))
    asked = []
    monkeypatch.setattr(altered, "locate", lambda *args: asked.append(args) or file)
    assert read_train_captions(Runtime(data=tmp_path)) == ["a dog 0", "a dog 1", "a dog 2"]
    assert asked == [("coco-captions", "captions_train2014.json", tmp_path)]
