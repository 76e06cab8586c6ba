"""`relabel tune bert_sts`: fine-tuning of a cross-encoder on STS-B.

A cross-encoder reads two sentences and returns their similarity. Zhou, Niu, Wang, Gao, Zhang, Hua, "Ladder Loss for
Coherent Visual-Semantic Embedding", AAAI 2020, fine-tune BERT with one regression output on STS-B and report Pearson's
r of 0.88 on its dev split.

Human scores of 0..5 are divided by 5 and learned with binary cross-entropy, so the sigmoid of the output is the
relevance.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from relabel.core.errors import MissingError
from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import Runtime
from relabel.datasets import fetch, locate
from relabel.datasets.judged.stsb import FILES, SentencePair, read_stsb
from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel.store.artefact import Guard, build
from relabel.store.atomic import sha256_file
from relabel.store.manifest import ArtefactSpec, Manifest
from relabel.store.place import check_kind
from relabel.store.workdir import Work

KIND = "cross_encoder"


class TuneBertStsParams(Parameters):
    """Parameters of the cross-encoder's training."""

    on: Literal["stsb"] = Field("stsb", description="Training data: STS-B's train split.")
    base: str = Field(DEFAULT_MODEL, description="Encoder to start from: a folder, or a name on the hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for the local copy.")
    epochs: int = Field(3, ge=1, le=10_000, description="Passes over the pairs, each pair in both orders.")
    batch_size: int = Field(32, ge=1, le=100_000, description="Pairs per step.")
    rate: float = Field(1e-4, gt=0, le=1000, description="Largest learning rate; 2e-5 suits BERT-base.")
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps in which the rate rises; then it falls to 0."
    )
    weight_decay: float = Field(0.01, ge=0, le=1000, description="Weight decay of AdamW.")
    max_length: int = Field(128, ge=8, le=1_000_000, description="Tokens a pair is truncated to in training.")
    checkpoints: int = Field(2, ge=1, le=10_000, description="Evaluations on dev, each with a checkpoint, per epoch.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Type of products in training; auto: bfloat16 if the processor supports it."
    )
    seed: Seed = Field(0, description="Seed of the new layers, the order of the pairs and dropout.")


def tune_bert_sts(
    params: TuneBertStsParams, out: Path, runtime: Runtime, guard: Guard | None = None
) -> tuple[Manifest, bool]:
    """Tune a cross-encoder on STS-B, unless the tuned model exists already. STS-B is fetched if it is missing.

    The checkpoint with the highest Pearson's r on dev is kept. An interrupted run resumes from its last checkpoint.

    Parameters
    ----------
    params : TuneBertStsParams
    out : Path
        Folder of the artefact (kind `cross_encoder`): the model's files and a manifest with Pearson and Spearman on dev
        and test. `bert_sts` and sentence-transformers' CrossEncoder load the folder.
    runtime : Runtime
    guard : Guard, optional
        Keeps an existing model from being replaced.

    Returns
    -------
    manifest : Manifest
    built : bool
        False if the model existed already.

    Raises
    ------
    MissingError
        If the base model, STS-B, or a package for training is missing.
    CheckError
        If a row of STS-B is not two sentences and a score, the base model cannot be loaded, or the folder holds
        something else.
    """
    check_kind(out, KIND)
    paths = find_stsb_files(runtime)
    base = find_model(params.base, params.revision, runtime.progress)
    semantic = params.model_dump(mode="json", exclude={"base", "revision"})
    inputs = {"base": base.sha256()} | {f"stsb {split}": sha256_file(path) for split, path in paths.items()}

    def fill(work: Work) -> None:
        from relabel.sources.bert_sts.tune_trainer import train

        pairs = {split: read_stsb(path) for split, path in paths.items()}
        results = train(params, base.folder, pairs, work, runtime)
        work.facts |= {"base": base.name, "pairs": {split: len(rows) for split, rows in pairs.items()}} | results
        work.runtime["base"] = base.record()

    artefact = ArtefactSpec(KIND, f"{base.name.split('/')[-1]} on stsb", semantic, inputs)
    return build(out, artefact, fill, runtime.progress, guard)


def find_stsb_files(runtime: Runtime) -> dict[str, Path]:
    """Return STS-B's files by split, after fetching them if they are missing."""
    try:
        return {split: locate("stsb", file, runtime.data) for split, file in FILES.items()}
    except MissingError:
        fetch("stsb", runtime.data, None, runtime.progress)
    return {split: locate("stsb", file, runtime.data) for split, file in FILES.items()}


def pair_columns(pairs: Sequence[SentencePair]) -> dict[str, list[Any]]:
    """Return pairs as columns, each pair in both orders.

    Examples
    --------
    >>> from relabel.datasets.judged.stsb import SentencePair
    >>> from relabel.sources.bert_sts.tune import pair_columns
    >>> pair_columns([SentencePair("a dog", "a puppy", 4.0, line=1)])
    {'first': ['a dog', 'a puppy'], 'second': ['a puppy', 'a dog'], 'label': [0.8, 0.8]}
    """
    rows = [(p.first, p.second, p.score / 5) for p in pairs] + [(p.second, p.first, p.score / 5) for p in pairs]
    return {name: [row[i] for row in rows] for i, name in enumerate(("first", "second", "label"))}
