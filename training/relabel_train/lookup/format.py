"""Format of a lookup: `lookup.json`, and one little-endian `NAME.npy` for each of its arrays.

N captions, M images; *positions* are rows counted from the first row covered.

==========================  ====================================================================================
`image`                     (N,) int32; image number of each position, from 0
`indptr`                    (M + 1,) int64; image m has the positions ``indptr[m]:indptr[m + 1]``
`failed`                    int32; positions without an encoding, ascending
`texts`                     (N,) uint64; 8-byte BLAKE2b of each text without white space around it
`caption_ids.*`             ids of the captions, `image_ids.*` of the images: the arrays of `relabel_train.ids.Ids`
`neighbours.indptr`         CSR over the rows that have neighbours, by (-score, row), with `neighbours.rows` (int32)
                            and `neighbours.scores` (float32); only if they were computed before the export
==========================  ====================================================================================

`captions.csv` has caption id, image id, position and text of each caption, for a join in any language.

The kind decides the other arrays: `vectors` (N, D), and `image_vectors` (M, D) for the pooling `set`, are read by
`VectorBlocks`; `features.*` and `siblings.*` by `CiderBlocks`, `scene_graphs.*` by `SpiceBlocks`. The kind `others` has
the arrays of part i of a fused label after ``part{i}.``, and its curves in `params`. `scores.*` are read by
`ScoreBlocks`, with the arrays of the label of missing pairs after ``gate.``. `baseline` needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from relabel_train.files import ExportDescription
from relabel_train.scoring.calibration import CalibrationCurve
from relabel_train.scoring.references import Pooling

DESCRIPTION = "lookup.json"
CAPTIONS = "captions.csv"


@dataclass(frozen=True)
class ArrayEntry:
    """Description of one array."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Description(ExportDescription):
    """Content of `lookup.json`.

    `kind`: "vectors", "image_vectors", "features", "scene_graphs", "others", "scores" or "baseline".
    `fingerprint`, `corpus`, `encoding`: of this lookup, its corpus and its encoding.
    `neighbours`: None if none were computed before the export. Otherwise `fingerprint`, `rows` (first and one past the
    last
        row that has neighbours), `candidates` (the split of the neighbours), `width` (neighbours per caption) and
        `index` (None if exact; otherwise the faiss index, and some neighbours may be missing).
    `rows`: corpus rows covered, first and one past the last; all captions of an image or none.
    `bounds`: minimum and maximum relevance. `pooling`, `poolings`: the default, and all that the label supports.
    `references`: number of an image's first captions that are its references (`first`: the caption that names it).
    `symmetric`: True if r(a, b) = r(b, a) for single captions. `sizes`: numbers that the reader of the kind needs.
    `failed`: captions without an encoding. `params`: of the source and its inputs: for a methods section, and to
    reproduce it. `curve`: what people say of the relevance of an image and a caption; None if it is not known.
    """

    FORMAT: ClassVar[int] = 6

    kind: str
    source: str
    label: str
    fingerprint: str
    corpus: str
    encoding: str
    neighbours: dict[str, Any] | None
    split: str
    rows: tuple[int, int]
    bounds: tuple[float, float]
    pooling: Pooling
    poolings: tuple[Pooling, ...]
    references: int
    symmetric: bool
    dtype: str
    sizes: dict[str, int]
    failed: int
    params: dict[str, Any]
    curve: CalibrationCurve | None
    arrays: dict[str, ArrayEntry]
    orientation: str = "rows are images, columns are captions; the text direction is the transpose"
    siblings: str = "by image id; never inferred from a value"
