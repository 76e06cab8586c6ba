"""Flickr8k's captions and the lines of its two files of judgements."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from relabel.core.errors import CheckError
from relabel.core.parsing import read_lines
from relabel.datasets.judged import Find, Judgements

DATASET = "flickr8k"
CAPTIONS = "Flickr8k.token.txt"
PAIR_IDS = "image and caption, with a space between: `IMAGE.jpg OTHER.jpg#2`"
_CAPTION = re.compile(r"(\S+)#([0-9]+)\t(.*)")


class RatedPair(NamedTuple):
    """A caption that people rated against an image, which stands for its references."""

    image: str
    caption_id: str
    references: list[str]
    candidate: str
    ratings: list[float]


def read_ratings(find: Find, file: str) -> Iterator[tuple[RatedPair, dict[str, str]]]:
    """Yield the pairs of a file of judgements, with the captions of their image by id, which are all references."""
    captions = read_captions(find(CAPTIONS))
    for image, caption, values, where in read_judgements(find(file), 3):
        references, text = captions_of(captions, image, where), text_of(captions, caption, where)
        yield RatedPair(image, caption, list(references.values()), text, values), references


def join(pairs: Sequence[RatedPair]) -> Judgements:
    """Return pairs with equally many ratings as judgements of one group, clustered by image."""
    return Judgements(
        ids=[f"{pair.image} {pair.caption_id}" for pair in pairs],
        references=[pair.references for pair in pairs],
        candidates=[pair.candidate for pair in pairs],
        ratings=np.array([pair.ratings for pair in pairs]),
        groups=["all"] * len(pairs),
        clusters=[pair.image for pair in pairs],
    )


def read_captions(path: Path) -> dict[str, dict[str, str]]:
    """Read captions by image and caption id (`IMAGE.jpg#N`), in the order of the file."""
    captions: dict[str, dict[str, str]] = {}
    for where, line in _lines(path):
        match = _CAPTION.fullmatch(line)
        if match is None:
            problem = "expected IMAGE.jpg#N, a tab and a caption"
            raise CheckError(problem, where=where, todo="Fetch it again.")
        captions.setdefault(match[1], {})[f"{match[1]}#{match[2]}"] = match[3].strip()
    return captions


def read_judgements(path: Path, columns: int) -> Iterator[tuple[str, str, list[float], str]]:
    """Yield the image, the caption id, the numbers and `file:line` of every judgement."""
    for where, line in _lines(path):
        # A line without two tabs has no numbers, and is refused below with its own name.
        image, caption, *cells = line.split("\t") if line.count("\t") > 1 else ("", "")
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            values = []
        if len(values) != columns:
            problem = f"expected an image, a caption id and {columns} numbers, separated by tabs"
            raise CheckError(problem, where=where, todo="Fetch it again.")
        yield image, caption, values, where


def captions_of(captions: dict[str, dict[str, str]], image: str, where: str) -> dict[str, str]:
    """Return the captions of an image by id."""
    try:
        return captions[image]
    except KeyError:
        problem = f"no captions of image {image} in {CAPTIONS}"
        raise CheckError(problem, where=where, todo="Fetch both files again.") from None


def text_of(captions: dict[str, dict[str, str]], caption: str, where: str) -> str:
    """Return the text of a caption id."""
    try:
        return captions[caption.rpartition("#")[0]][caption]
    except KeyError:
        problem = f"no caption {caption} in {CAPTIONS}"
        raise CheckError(problem, where=where, todo="Fetch both files again.") from None


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    return ((where, line) for where, line in read_lines(path) if line.strip())
