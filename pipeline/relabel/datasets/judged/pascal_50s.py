"""PASCAL-50S: which of two captions is more similar to a reference caption, by 48 votes.

Vedantam, Zitnick, Parikh: "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015.
"""

from __future__ import annotations

import json

from relabel.core.errors import CheckError
from relabel.core.parsing import read_text
from relabel.datasets.judged import Find, JudgedSet, Judgements, choices_of

FILE = "pascal_50s.json"
KINDS = ("HC", "HI", "HM", "MM")
"""Two correct human captions; a correct and an incorrect one; human and machine; two machines."""


def read(find: Find) -> Judgements:
    """Read the 4,000 choices: pairs 2t and 2t + 1 are the two captions of item t."""
    path = find(FILE)
    ids: list[str] = []
    references: list[list[str]] = []
    candidates: list[str] = []
    items, groups, images = [], [], []
    try:
        body = json.loads(read_text(path))
        for kind in KINDS:
            for number, entry in enumerate(body[kind]):
                first, second = entry["captions"]
                # `label` names the caption that more of the 48 votes chose.
                pair, better = len(candidates), int(entry["label"])
                ids += [f"{kind}:{number}:{caption}" for caption in (0, 1)]
                references += [list(entry["references"])] * 2
                candidates += [first, second]
                # With one comparison per item, its accuracy is the share of choices that agree with the majority.
                items.append([(pair + better, pair + 1 - better)])
                groups.append(kind)
                images.append(entry["image"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f"expected the kinds {', '.join(KINDS)}, each a list of captions, label and references ({error!r})"
        raise CheckError(problem, where=str(path), todo="Fetch it again.") from error
    return Judgements(
        ids=ids,
        references=references,
        candidates=candidates,
        choices=choices_of(items),
        groups=groups,
        clusters=images,
    )


SET = JudgedSet(
    name="pascal-50s",
    title="PASCAL-50S, the better of two captions: accuracy by kind",
    dataset="pascal-50s",
    read=read,
    ties=0.5,
    pair_ids="kind, item and caption, counted from 0: `HC:17:0`",
    protocol="PASCAL-50S: five references of one draw; two equal scores count as half. HC: two correct human "
    "captions; HI: a correct and an incorrect one; HM: a human's and a machine's; MM: two machines'.",
)
