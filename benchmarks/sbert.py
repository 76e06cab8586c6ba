"""Sentence embeddings of COCO's 25,000 test captions, compared with sentence-transformers' `encode`.

    python benchmarks/sbert.py [--captions N] [--model NAME] [--threads N]

Both sides get the same captions, model and number of threads, and return unit vectors. Loading is not timed. The
benchmark stops if the cosine of a float32 vector and its counterpart is below 0.99999. With `--threads 1`, the CPU
seconds are those that load from other processes does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import Table, alternate, coco_captions, options
from sentence_transformers import SentenceTransformer

from relabel.core.runtime import Runtime
from relabel.sources.models.base import Encoder
from relabel.sources.models.embeddings import SavedEncoder
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel.sources.sbert.quantize import quantize_model
from relabel.store.files import temporary_folder

PEER = "sentence-transformers"


def main() -> None:
    args = options(__doc__, captions=25_000, model=DEFAULT_MODEL)
    texts = [text for _, _, text in coco_captions()]
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[: args.captions]]
    folder, runtime = find_model(args.model).folder, Runtime(device="cpu", threads=args.threads)
    torch.set_num_threads(args.threads)
    peer = SentenceTransformer(str(folder), device="cpu")
    works: dict[str, Callable[..., Any]] = {PEER: lambda some: peer.encode(some, normalize_embeddings=True)}
    plain = SentenceEncoder(folder, None, None, "float32", runtime)
    # The first captions of a random order calibrate the int8 model, as those of a dataset do.
    dtypes = ("float32", "bfloat16")
    encoders: dict[str, Encoder] = {dtype: SentenceEncoder(folder, None, None, dtype, runtime) for dtype in dtypes}
    with temporary_folder() as int8:
        plain.save(int8, quantize_model(plain.convert(), plain.tokens(texts[:300])[0]))
        encoders["int8"] = SavedEncoder(int8, "int8", runtime)
    for dtype, encoder in encoders.items():
        works[dtype] = lambda some, encoder=encoder: encoder.encode(some).vectors
    for work in works.values():
        work(texts[:200])
    costs = alternate({name: lambda work=work: work(texts) for name, work in works.items()}, args.repeats)
    theirs = costs.pop(PEER)
    table = Table(f"{len(texts):,} captions, {args.model}, {args.threads} threads")
    for dtype, cost in costs.items():
        cosine = float(np.einsum("nd,nd->n", cost.result, theirs.result, dtype=np.float64).min())
        if dtype == "float32" and not cosine > 0.99999:
            raise SystemExit(f"float32 vectors differ: least cosine {cosine:.7f}")
        table.add(dtype, "s", cost.wall, PEER, theirs.wall, **{"largest 1 - cosine": 1 - cosine})
        table.add(dtype, "CPU s", cost.cpu, PEER, theirs.cpu)
    table.end("sbert", args.save, "openvino", "torch", "sentence-transformers", "transformers")


if __name__ == "__main__":
    main()
