"""SugarCrepe++: two captions of the same meaning in other words, and one of another meaning in nearly the same words.

Dumpala et al.: "SUGARCREPE++ Dataset: Vision-Language Model Sensitivity to Semantic and Lexical Alterations", NeurIPS
2024 (datasets and benchmarks).
"""

from __future__ import annotations

import json

from relabel.core.errors import CheckError
from relabel.core.parsing import read_text
from relabel.datasets.judged import Find, JudgedSet, Judgements, choices_of

KINDS = {
    "replace_obj": "replace object",
    "replace_rel": "replace relation",
    "replace_att": "replace attribute",
    "swap_att": "swap attribute",
    "swap_obj": "swap object",
}
"""File to kind."""
PAIRS = ("positives", "caption", "caption2")
"""Pairs of a triple: both captions of one meaning, and each of them with the third caption."""


def read(find: Find) -> Judgements:
    """Read the 4,757 triples. Of triple t, pair 3t is the positives, 3t + 1 and 3t + 2 are each with the negative."""
    ids: list[str] = []
    references: list[list[str]] = []
    candidates: list[str] = []
    items, groups, images = [], [], []
    for file, kind in KINDS.items():
        path = find(f"{file}.json")
        try:
            for entry in json.loads(read_text(path)):
                first, second, negative = (entry[key] for key in ("caption", "caption2", "negative_caption"))
                pair = len(candidates)
                ids += [f"{file}:{entry['id']}:{which}" for which in PAIRS]
                references += [[first], [first], [second]]
                candidates += [second, negative, negative]
                # Right only where the positives are closer to each other than either is to the negative.
                items.append([(pair, pair + 1), (pair, pair + 2)])
                groups.append(kind)
                # Triples of one image are resampled together.
                images.append(entry["filename"])
        except (KeyError, TypeError, ValueError) as error:
            problem = f"expected a list of caption, caption2, negative_caption and filename ({error!r})"
            raise CheckError(problem, where=str(path), todo="Fetch it again.") from error
    return Judgements(
        ids=ids,
        references=references,
        candidates=candidates,
        both_orders=True,
        choices=choices_of(items),
        groups=groups,
        clusters=images,
    )


SET = JudgedSet(
    name="sugarcrepe-pp",
    title="SugarCrepe++, triples of captions: accuracy by kind, chance 33",
    dataset="sugarcrepe-pp",
    read=read,
    pair_ids="file, `id` and pair (positives; caption or caption2, each with the negative): `swap_att:17:positives`",
    protocol="SugarCrepe++: a triple is right where the two captions of one meaning are closer to each other than "
    "either is to the third; both orders averaged. 176 of its 1,542 images are in CxC's val split, on which a tuned "
    "label may have been fitted.",
)
