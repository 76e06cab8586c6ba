"""Visual STS: similarity of two captions, 0 to 5. Annotators saw both images.

Lopez de Lacalle, Salaberria, Soroa, Azkune, Agirre: "Evaluating Multimodal Representations on Visual Semantic Textual
Similarity", ECAI 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

from relabel.datasets.evaluation_sets import EvaluationSet, Find, Item, judgements
from relabel.datasets.evaluation_sets._tables import read_rows

COLUMNS = ("id", "source", "sent1", "image1", "sent2", "image2", "sim")


def _items(find: Find) -> Iterator[Item]:
    """Yield the 2,677 pairs of captions, grouped by their source: COCO, Flickr30K and STS's image captions."""
    # The images are not read, because labels only use captions.
    for _, row, score in read_rows(find("visual_sts.v2.0.all.tsv"), COLUMNS, ("sim",)):
        yield Item([(row["id"], [row["sent1"]], row["sent2"])], score, group=row["source"])


SET = EvaluationSet(
    name="vsts",
    title="Visual STS, caption and caption: correlation with human similarity",
    dataset="vsts",
    read=lambda find: judgements(_items(find), both_orders=True),
    statistics=("pearson",),
    pair_ids="`id` of the file",
    protocol="Visual STS: all 2,677 pairs, scores of both orders averaged. Labels read only the captions; people saw "
    "both images. 110 of the COCO pairs have images of CxC's val split; tuned labels may have been fitted on them.",
)
