"""Reader of Flickr8k's two files of judgements. People rated captions for images; captions represent the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relabel.core.errors import CheckError
from relabel.core.parsing import read_lines
from relabel.datasets.evaluation_sets import Item
from relabel.datasets.evaluation_sets._tables import read_rows

DATASET = "flickr8k"
CAPTIONS = "Flickr8k.token.txt"
PAIR_IDS = "image and caption, with a space between: `IMAGE.jpg OTHER.jpg#2`"


def rated_captions(
    texts: Path, file: Path, columns: Sequence[str], ratings: Sequence[str], own_captions: bool
) -> Iterator[Item]:
    """Yield the judged pairs of an image and a caption, clustered by image.

    `texts`: file of captions. `columns`: columns after image and caption. `ratings`: columns to read. `own_captions`:
    whether to include pairs of an image and its own caption. Judged captions are then removed from the references.
    """
    captions: dict[str, dict[str, str]] = {}
    for _, line in read_lines(texts):
        # One caption holds a tab.
        name, _, text = line.partition("\t")
        captions.setdefault(name.partition("#")[0], {})[name] = text.strip()
    rows = list(read_rows(file, ("image", "caption", *columns), ratings))
    judged = {(row["image"], row["caption"]) for _, row, _ in rows} if own_captions else set[tuple[str, str]]()
    for where, row, values in rows:
        image, caption = row["image"], row["caption"]
        try:
            own, text = captions[image], captions[caption.partition("#")[0]][caption]
        except KeyError as error:
            raise CheckError(f"{error} has no caption in {CAPTIONS}", where=where, hint="Fetch both again.") from None
        if own_captions or caption not in own:
            references = [reference for name, reference in own.items() if (image, name) not in judged]
            yield Item([(f"{image} {caption}", references, text)], values, cluster=image)
