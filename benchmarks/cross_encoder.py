"""A cross-encoder on pairs of COCO's test captions, compared with sentence-transformers' `predict`.

    python benchmarks/cross_encoder.py --model FOLDER_OR_NAME [--images N]

The work is that of a label: the relevance of every caption of N images to every other one, averaged over both orders.
Both sides score all ordered pairs of distinct captions. The benchmark stops if a float32 score differs from the
peer's by more than 1e-4. Times are CPU seconds of one thread, which load from other processes does not change.
"""

from __future__ import annotations

import numpy as np
from harness import Table, agree, alternate, coco_captions, options
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Runtime
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.sources.models.files import find_model

PEER = "CrossEncoder.predict"


def main() -> None:
    args = options(__doc__, model=str, images=8)
    folder, captions = find_model(args.model).folder, coco_captions()
    images = list(dict.fromkeys(image for _, image, _ in captions))
    chosen = set(np.random.default_rng(0).permutation(images)[: args.images].tolist())
    texts = list(dict.fromkeys(text.strip() for _, image, text in captions if image in chosen))
    pairs = [(a, b) for a in texts for b in texts if a != b]
    first, second = zip(*pairs, strict=True)
    peer = CrossEncoder(str(folder), device="cpu")
    peer.float()
    runtime = Runtime(device="cpu", threads=1)
    scorers = {d: PairScorer(folder, BertStsParams(dtype=d), runtime) for d in ("float32", "bfloat16")}

    def predicted() -> NDArray[np.float64]:
        return np.asarray(peer.predict(pairs, show_progress_bar=False), np.float64)

    works = {PEER: predicted}
    for dtype, scorer in scorers.items():
        works[dtype] = lambda s=scorer: s.score(first, second)  # type: ignore[misc]
    with inner_threads(1):
        predicted()
        costs = alternate(works, args.repeats)
    table, theirs = Table(f"{len(first):,} ordered pairs of {len(texts)} captions, CPU time"), costs.pop(PEER)
    for dtype, cost in costs.items():
        apart = agree(dtype, cost.result, theirs.result, 1e-4 if dtype == "float32" else 1)
        table.add(dtype, "pairs/s", len(first) / cost.cpu, PEER, len(first) / theirs.cpu, apart=apart)
    table.end("cross_encoder", args.save, "openvino", "torch", "sentence-transformers", "transformers")


if __name__ == "__main__":
    main()
