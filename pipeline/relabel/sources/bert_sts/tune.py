"""`relabel tune bert_sts`: fine-tune a cross-encoder on STS-B.

A cross-encoder reads two sentences and returns their similarity. Zhou, Niu, Wang, Gao, Zhang, Hua, "Ladder Loss for
Coherent Visual-Semantic Embedding", AAAI 2020, fine-tune BERT with one regression output on STS-B and report Pearson's
r of 0.88 on its dev split.

Human scores 0..5 are divided by 5 and learned with binary cross-entropy, so the sigmoid of the output is the relevance.
Training takes minutes and does not resume after an interruption.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from relabel.core.numeric.statistics import pearson, round_relative, spearman
from relabel.core.numeric.threads import inner_threads
from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import Runtime, pick_device
from relabel.datasets import locate
from relabel.datasets.evaluation_sets.stsb import FILES, SentencePair, read_stsb
from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel.sources.models.forward import product_type
from relabel.sources.models.loading import load_from_folder, positions_of, quiet, save_model
from relabel.store.artefact import Inputs, Recipe
from relabel.store.workdir import Work
from relabel_train.files import sha256_file

KIND = "cross_encoder"
_BATCH = 32  # batch size, as in BERT's fine-tuning
_SORTED_BATCHES = 50  # number of batches to sort by length together
_WARMUP = 0.1  # share of warm-up steps, as in BERT's fine-tuning
_WEIGHT_DECAY = 0.01  # as in BERT's fine-tuning
_MAX_LENGTH = 128  # maximum number of tokens of a pair; nearly all pairs of STS-B are shorter
_GRADIENT_NORM = 1.0  # maximum gradient norm


class TuneBertStsParams(Parameters):
    """Parameters of the cross-encoder's training."""

    base: str = Field(DEFAULT_MODEL, description="Base encoder: a folder, or a name on the hub.")
    epochs: int = Field(3, ge=1, le=10_000, description="Number of epochs, with each pair in both orders.")
    learning_rate: float = Field(1e-4, gt=0, le=1000, description="Maximum learning rate; use 2e-5 for BERT-base.")
    seed: Seed = Field(0, description="Seed of the new layers, the order of the pairs and dropout.")


def tune_bert_sts(params: TuneBertStsParams, runtime: Runtime) -> Recipe:
    """Return the recipe of a cross-encoder tuned on STS-B, with the model files for `bert_sts`."""
    paths = cache(partial(find_stsb_files, runtime))
    find_base = cache(partial(find_model, params.base, progress=runtime.progress))
    config = partial(params.model_dump, mode="json", exclude={"base"})
    inputs: Inputs = {"base": lambda: find_base().sha256()}
    inputs |= {f"stsb {split}": lambda split=split: sha256_file(paths()[split]) for split in FILES}  # type: ignore[misc]

    def fill(work: Work) -> None:
        base = find_base()
        pairs = {split: read_stsb(path) for split, path in paths().items()}
        metadata = train(params, base.folder, pairs, work, runtime)
        work.metadata |= {"base": base.name, "pairs": {split: len(rows) for split, rows in pairs.items()}} | metadata
        work.provenance["base"] = base.record()

    return Recipe(KIND, f"{Path(params.base).name} on stsb", config, inputs, fill)


def find_stsb_files(runtime: Runtime) -> dict[str, Path]:
    """Return the files of STS-B by split."""
    return {split: locate("stsb", file, runtime.data) for split, file in FILES.items()}


def train(
    params: TuneBertStsParams, base: Path, pairs: Mapping[str, Sequence[SentencePair]], work: Work, runtime: Runtime
) -> dict[str, Any]:
    """Train a cross-encoder, starting from the encoder in `base`, and write its files.

    `pairs`: pairs of the splits train, dev and test. Returns metadata for the manifest: correlation with human scores
    on dev and test, precision, device and number of steps.
    """
    import torch
    from transformers import get_linear_schedule_with_warmup

    device = pick_device(runtime.device)
    precision = product_type("bfloat16", device)
    # The layers of the head are initialized when the model is loaded.
    torch.manual_seed(params.seed)
    # In bfloat16 on a CPU, the backward pass of torch's fused attention is several times slower.
    attention = {"attn_implementation": "eager"}
    model = load_from_folder("CrossEncoder", base, num_labels=1, device=device, model_kwargs=attention)
    model.tokenizer.model_max_length = min(_MAX_LENGTH, positions_of(model) or _MAX_LENGTH)
    texts = [(p.first, p.second) for p in pairs["train"]] + [(p.second, p.first) for p in pairs["train"]]
    scores = torch.tensor([p.score / 5 for p in pairs["train"]] * 2, device=device)
    lengths, rng = np.array([len(a) + len(b) for a, b in texts]), np.random.default_rng(params.seed)
    batches = [batch for _ in range(params.epochs) for batch in epoch_batches(lengths, _BATCH, rng)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, weight_decay=_WEIGHT_DECAY)
    warmup = round(len(batches) * _WARMUP)
    schedule = get_linear_schedule_with_warmup(optimizer, warmup, len(batches))  # type: ignore[no-untyped-call]
    with quiet(), inner_threads(runtime.threads):
        model.train()
        with runtime.progress.bar("cross-encoder", len(batches), "steps") as bar:
            for batch in batches:
                inputs = [texts[i] for i in batch]
                features = model.tokenizer(inputs, padding=True, truncation=True, return_tensors="pt")
                with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
                    logits = model.model(**features.to(device)).logits
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.view(-1).float(), scores[batch])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(model.parameters(), _GRADIENT_NORM)
                optimizer.step()
                schedule.step()
                bar.advance(1)
        model.eval()
        save_model(lambda folder: model.save_pretrained(str(folder), create_model_card=False), work)
        agreement = {split: _correlate(model, pairs[split]) for split in ("dev", "test")}
    return {"stsb": agreement, "precision": precision, "device": device, "steps": len(batches)}


def epoch_batches(lengths: NDArray[np.int64], size: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Divide pairs into random batches of similar length, to reduce padding."""
    order, batches = rng.permutation(len(lengths)), list[NDArray[np.int64]]()
    # Sorting within random chunks gives random batches of similar lengths.
    for a in range(0, len(order), size * _SORTED_BATCHES):
        chunk = order[a : a + size * _SORTED_BATCHES]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[b : b + size] for b in range(0, len(chunk), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _correlate(model: Any, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    """Correlate a model's scores of pairs, in their given order, with human scores."""
    scores = model.predict([(p.first, p.second) for p in pairs], show_progress_bar=False, convert_to_tensor=True)
    relevance, human = round_relative(scores.double().cpu().numpy()), np.array([p.score for p in pairs])
    return {"n": len(pairs), "pearson": pearson(relevance, human), "spearman": spearman(relevance, human)}
