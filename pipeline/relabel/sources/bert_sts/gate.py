"""Selection of the threshold of a gate on pairs of Crisscrossed Captions' val split.

Zhou et al. (AAAI 2020) refine pairs with a GloVe-CBoW score of at least 0.8. Other labels have different distributions
of scores: 20% of CxC's reference pairs reach 0.8 by word2vec, and 93% by GloVe. For other gates, the threshold is
therefore the maximum at which Pearson's r is at most 0.005 lower than without a gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from relabel.core.errors import MissingError
from relabel.core.numeric.statistics import pearson
from relabel.core.runtime import Runtime
from relabel.core.types import Scores
from relabel.corpus import REFERENCES, Corpus
from relabel.datasets.cxc import METHODS, human_scores, sha256
from relabel.sources.base import Source
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.judged import find_judged
from relabel.sources.texts import fingerprint_texts, score_texts
from relabel.store.artefact import Recipe
from relabel.store.manifest import MANIFEST, open_artefact
from relabel.store.workdir import Work

GATE = "gate"
KIND = "gate_threshold"
_PAIRS = 1000  # number of judged pairs of a caption and another image; each has five pairs of captions
_LARGEST_LOSS = 0.005  # maximum decrease of Pearson's r with human scores
_STEPS = 200  # number of thresholds to try: quantiles of the gate's scores


def read_threshold(folder: Path) -> float:
    """Read the selected threshold of a label. Raises MissingError if there is none."""
    if not (folder / MANIFEST).exists():
        hint = "Run `relabel run` to select it on COCO's val captions, or set `threshold`."
        raise MissingError("the threshold of this gate has not been selected", where=str(folder), hint=hint)
    return float(open_artefact(folder, KIND).metadata["threshold"])


def threshold_recipe(
    params: BertStsParams, ungated: Source[Any], gate: Mapping[str, Source[Any]], corpus: Corpus, runtime: Runtime
) -> Recipe:
    """Return the recipe of a threshold.

    `ungated`: the cross-encoder without a gate. `gate`: sources of the gate and its components by label. `corpus`: COCO
    with Karpathy's val split.
    """
    label, sources = str(params.gate), {**gate, "ungated": ungated}

    def config() -> dict[str, Any]:
        labels = fingerprint_texts([["a text"]], ["a text"], sources, runtime)
        return {"labels": labels, "pairs": _PAIRS, "loss": _LARGEST_LOSS}

    def fill(work: Work) -> None:
        human = human_scores("sits", "val")
        others = np.flatnonzero(np.array(human.method) != METHODS["sits"][0])
        pairs = np.random.default_rng(0).permutation(others)[:_PAIRS]
        rows, images = find_judged(human, corpus)
        references = [[corpus.texts[row]] for row in corpus.references(images[pairs], REFERENCES).rows.tolist()]
        captions = [corpus.texts[row] for row in np.repeat(rows[pairs], REFERENCES).tolist()]
        coarse, fine = (
            score_texts(sources[name], references, captions, runtime, sources, label=name).scores.reshape(
                -1, REFERENCES
            )
            for name in (label, "ungated")
        )
        result = choose_threshold(coarse, fine, human.score[pairs])
        work.metadata |= {"gate": label, "pairs": len(pairs)} | result
        text = f"r of {len(pairs):,} pairs of CxC val {result['r']:.3f}, without a gate {result['ungated']:.3f}"
        share = f"{result['refined']:.0%} of their captions refined"
        runtime.progress.note(f"threshold of the gate {label}: {result['threshold']:.3f} ({text}; {share})")

    return Recipe(KIND, f"{label} on cxc-val", config, {"cxc sits val": partial(sha256, "sits", "val")}, fill)


def choose_threshold(coarse: Scores, fine: Scores, human: Scores) -> dict[str, float]:
    """Select the maximum threshold up to which Pearson's r decreases by at most 0.005.

    `coarse`, `fine`: (P, R); scores of the references of each pair by the gate and the cross-encoder, pooled by their
    maximum. `human`: (P,). Returns the threshold, the share of refined scores, r, and r without a gate.
    """
    finite = np.isfinite(coarse).all(axis=1) & np.isfinite(fine).all(axis=1)
    coarse, fine, human = coarse[finite], fine[finite], human[finite]
    ungated, result = pearson(fine.max(axis=1), human) or 0.0, dict[str, float]()
    for quantile in np.linspace(0, 1, _STEPS):
        # Rounded down, so that rounding errors of scores do not matter for pairs of the sample.
        threshold = np.floor(np.quantile(coarse, quantile) * 1000) / 1000
        refined = coarse >= threshold
        r = pearson(np.where(refined, fine, 0.0).max(axis=1), human) or 0.0
        if r < ungated - _LARGEST_LOSS:
            break
        result = {"threshold": threshold, "refined": refined.mean(), "r": r, "ungated": ungated}
    return {name: round(float(value), 4) for name, value in result.items()}
