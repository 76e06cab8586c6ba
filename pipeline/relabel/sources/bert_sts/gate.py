"""Threshold of a gate, chosen on pairs of Crisscrossed Captions' val split.

Zhou et al. (AAAI 2020) refine the pairs with a GloVe-CBoW score of at least 0.8. Scores of other labels have other
distributions: 20% of CxC's reference pairs have a score of 0.8 by word2vec, and 93% by GloVe. Therefore, the threshold
of another gate is the largest one that costs at most 0.005 of Pearson's r, compared with no gate.
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
_PAIRS = 1000  # judged pairs of a caption and another image, each five pairs of captions
_LARGEST_LOSS = 0.005  # of Pearson's r with human scores
_STEPS = 200  # thresholds that are tried: quantiles of the gate's scores


def read_threshold(folder: Path) -> float:
    """Return the threshold that was chosen for a label; raise MissingError if there is none."""
    if not (folder / MANIFEST).exists():
        todo = "Run `relabel run`, which chooses it on COCO's val captions, or set `threshold`."
        raise MissingError("no threshold was chosen for this gate", where=str(folder), todo=todo)
    return float(open_artefact(folder, KIND).metadata["threshold"])


def threshold_recipe(
    params: BertStsParams, ungated: Source[Any], gate: Mapping[str, Source[Any]], corpus: Corpus, runtime: Runtime
) -> Recipe:
    """Return the recipe of a threshold.

    `ungated`: the cross-encoder without a gate. `gate`: sources of the gate and its parts, by label. `corpus`: COCO's,
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
            score_texts(sources[one], references, captions, runtime, sources, label=one).scores.reshape(-1, REFERENCES)
            for one in (label, "ungated")
        )
        chosen = choose_threshold(coarse, fine, human.score[pairs])
        work.metadata |= {"gate": label, "pairs": len(pairs)} | chosen
        text = f"r of {len(pairs):,} pairs of CxC val {chosen['r']:.3f}, without a gate {chosen['ungated']:.3f}"
        share = f"{chosen['refined']:.0%} of their captions refined"
        runtime.progress.note(f"threshold of the gate {label}: {chosen['threshold']:.3f} ({text}; {share})")

    return Recipe(KIND, f"{label} on cxc-val", config, {"cxc sits val": partial(sha256, "sits", "val")}, fill)


def choose_threshold(coarse: Scores, fine: Scores, human: Scores) -> dict[str, float]:
    """Choose the largest threshold of a gate that costs at most 0.005 of Pearson's r, as does no smaller one.

    `coarse`, `fine`: (P, R); scores of each pair's references by the gate and by the cross-encoder; the label is the
    largest. `human`: (P,). Returns dict: the threshold, the share of refined scores, r, and r without a gate.
    """
    known = np.isfinite(coarse).all(axis=1) & np.isfinite(fine).all(axis=1)
    coarse, fine, human = coarse[known], fine[known], human[known]
    ungated, chosen = pearson(fine.max(axis=1), human) or 0.0, dict[str, float]()
    for quantile in np.linspace(0, 1, _STEPS):
        # Rounded down, so that no rounding of a score decides about the pairs of the sample.
        threshold = np.floor(np.quantile(coarse, quantile) * 1000) / 1000
        refined = coarse >= threshold
        r = pearson(np.where(refined, fine, 0.0).max(axis=1), human) or 0.0
        if r < ungated - _LARGEST_LOSS:
            break
        chosen = {"threshold": threshold, "refined": refined.mean(), "r": r, "ungated": ungated}
    return {name: round(float(value), 4) for name, value in chosen.items()}
