"""Flickr8k's two files of judgements: people rate captions against an image, which stands for its own captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relabel.core.errors import CheckError
from relabel.core.parsing import read_lines
from relabel.datasets.evaluation_sets import Find, Item
from relabel.datasets.evaluation_sets._tables import read_rows

DATASET = "flickr8k"
CAPTIONS = "Flickr8k.token.txt"
PAIR_IDS = "image and caption, with a space between: `IMAGE.jpg OTHER.jpg#2`"


def rated_captions(
    find: Find, file: str, columns: Sequence[str], ratings: Sequence[str], own_captions: bool
) -> Iterator[Item]:
    """Yield the pairs of a file of judgements, an image and a caption, clustered by image.

    `columns`: after image and caption. `ratings`: those that are read. `own_captions`: whether pairs of an image and
    one of its own captions count; the caption is no reference of itself.
    """
    captions: dict[str, dict[str, str]] = {}
    for _, line in read_lines(find(CAPTIONS)):
        # One caption holds a tab.
        name, _, text = line.partition("\t")
        captions.setdefault(name.partition("#")[0], {})[name] = text.strip()
    for where, row, values in read_rows(find(file), ("image", "caption", *columns), ratings):
        image, caption = row["image"], row["caption"]
        try:
            own, text = captions[image], captions[caption.partition("#")[0]][caption]
        except KeyError as error:
            raise CheckError(f"no captions of {error} in {CAPTIONS}", where=where, todo="Fetch both again.") from None
        if own_captions or caption not in own:
            references = [other for name, other in own.items() if name != caption]
            yield Item([(f"{image} {caption}", references, text)], values, cluster=image)
