"""`relabel tune sbert`: fine-tune a sentence encoder on human similarity scores, as a model for `sbert`.

The training data are the judged pairs of Crisscrossed Captions' val split. Pairs of captions (STS) are compared by
cosine, and pairs of a caption and an image (SITS) by the maximum cosine to the image's references. The scores of the
test split are for evaluation and are not read. Val and test do not share images.

Only the last layers are trained. The output of the other layers for a text is constant, so it is computed only once.

The loss corresponds to the evaluation of labels: 1 - Pearson's r between cosines and human scores in a batch, summed
over the kinds of pairs. It is the squared error after the optimal affine map of the cosine. Learning this map by
gradient descent gave worse labels, because it disturbs the cosines until it converges. Pairs of a caption and an image
count twice: once all pairs (the cosine of an image's own caption is 1, because it is one of the references), and once
only pairs of a caption and another image.

With folds, one model per fold is trained without the images of the fold, and the result is the average of their weights
(Wortsman et al., "Model soups", ICML 2022). The scores of each model for its held-out pairs are written to a table. A
`fuse` can be fitted on it without bias.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from relabel.core.errors import CheckError
from relabel.core.numeric.threads import inner_threads
from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import Progress, ProgressBar, Runtime, pick_device
from relabel.corpus import Corpus
from relabel.datasets.cxc import sha256
from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel.sources.models.forward import product_type
from relabel.sources.models.loading import default_prompt, load_model, quiet, save_model
from relabel.sources.sbert import tune_data
from relabel.sources.sbert.tune_data import OTHER_IMAGES, Batch, JudgedPairs, Numbers, Pairs, SentenceSet, correlations
from relabel.store.artefact import Inputs, Recipe
from relabel.store.workdir import Work
from relabel_train.files import sha256_file

if TYPE_CHECKING:
    from torch import Tensor, nn

KIND = "sentence_encoder"
OUT_OF_FOLD = "out_of_fold.parquet"
TRAINING = "training.json"
_SITS_WEIGHT = 0.7  # weight of all pairs of caption and image, and of those of other images; pairs of captions have 1
_SENTENCES_WEIGHT = 0.2  # weight of each set of sentence pairs
_LEAST_PAIRS = 4  # minimum number of pairs for a coefficient
_WARM_UP = 0.1  # share of warm-up steps
_AVERAGED = 0.4  # share of the last steps for averaging weights
_WEIGHT_DECAY = 0.01
_GRADIENT_NORM = 1.0  # maximum gradient norm
_TOKENS = 1024  # approximate number of tokens of texts that run together
_LEARNING = 3  # number of last layers to train: half of all-MiniLM-L6-v2
_LAYERS = ("encoder.layer", "transformer.layer", "layers")  # names of the list of layers in encoders


class TuneSbertParams(Parameters):
    """Parameters of fine-tuning a sentence encoder."""

    base: str = Field(DEFAULT_MODEL, description="Base model: a folder, or a name on the hub.")
    folds: int | None = Field(
        None, ge=2, le=1000, description="Number of models to train, each without one fold, and to average."
    )
    epochs: int = Field(3, ge=1, le=10_000, description="Number of passes over the captions.")
    learning_rate: float = Field(1e-4, gt=0, le=1000, description="Maximum learning rate.")
    sis: float = Field(0.0, ge=0, le=1e6, description="Weight of pairs of images; pairs of captions have weight 1.")
    extra_datasets: tuple[SentenceSet, ...] = Field((), description="Additional train splits: stsb, sick.")
    seed: Seed = Field(1, description="Seed of batches and folds.")


def tune_sbert(params: TuneSbertParams, corpus: Corpus, runtime: Runtime) -> Recipe:
    """Return the recipe of a sentence encoder, fine-tuned on CxC's val split.

    Its files are the model and, with folds, the folders `fold-0`, ..., and `out_of_fold.parquet`.

    `corpus`: COCO, or at least its val images.
    """
    base = cache(lambda: find_model(params.base, progress=runtime.progress))
    sentences = cache(lambda: {name: tune_data.find_sentence_pairs(name, runtime) for name in params.extra_datasets})
    inputs: Inputs = {"base": lambda: base().sha256(), "corpus": corpus.digest}
    inputs |= {f"cxc {t} val": partial(sha256, t, "val") for t in ("sts", "sits", *(("sis",) if params.sis else ()))}
    inputs |= {f"{name} train": lambda name=name: sha256_file(sentences()[name]) for name in params.extra_datasets}  # type: ignore[misc]

    def fill(work: Work) -> None:
        judged = tune_data.read_judged_pairs(corpus, sentences())
        work.metadata["base"], work.provenance["model"] = base().name, base().record()
        encoder = UpperLayers(base().folder, judged.texts, _LEARNING, None, runtime)
        one_fold = np.zeros(judged.images, np.int64)
        work.metadata["val"] = {"base": correlations(_table(judged, [base().folder], one_fold, runtime))}
        if params.folds:
            fold = tune_data.cut_folds(judged, params.folds, params.seed)
            models = [work.subfolder(f"fold-{k}") for k in range(params.folds)]
            for k, model in enumerate(models):
                _train(params, encoder, judged, np.flatnonzero(fold != k), model, runtime.progress)
            _merge(models, work)
            work.table(OUT_OF_FOLD, lambda: _table(judged, [model.folder for model in models], fold, runtime))
            work.metadata["val"]["out_of_fold"] = correlations(pq.read_table(work.folder / OUT_OF_FOLD))
        else:
            _train(params, encoder, judged, np.arange(judged.images), work, runtime.progress)
            # These values are too high, because the model was trained on the pairs.
            work.metadata["val"]["seen"] = correlations(_table(judged, [work.folder], one_fold, runtime))

    config = partial(params.model_dump, mode="json", exclude={"base"})
    return Recipe(KIND, f"{Path(params.base).name} on cxc-val", config, inputs, fill)


def _train(
    params: TuneSbertParams, encoder: UpperLayers, judged: JudgedPairs, images: Numbers, work: Work, progress: Progress
) -> None:
    """Train on the pairs of the given images and write the model, unless it exists."""
    # Written after the files of the model, so it marks a complete model.
    if work.done(TRAINING):
        return
    kinds = {"sts": 1.0, "sits": _SITS_WEIGHT, OTHER_IMAGES: _SITS_WEIGHT}
    kinds |= ({"sis": params.sis} if params.sis else {}) | dict.fromkeys(params.extra_datasets, _SENTENCES_WEIGHT)
    epochs = (tune_data.epoch_batches(judged, kinds, images, params.seed, epoch) for epoch in range(params.epochs))
    losses = train(encoder, list(chain.from_iterable(epochs)), kinds, params.learning_rate, progress)
    save_model(encoder.save, work)
    text = json.dumps({"dtype": encoder.dtype, "losses": losses})
    work.file(TRAINING, lambda path: path.write_text(text, encoding="utf-8"))


def _merge(folds: Sequence[Work], work: Work) -> None:
    """Write a model with the average weights of the models of all folds."""
    import torch

    models = [load_model(fold.folder, "cpu", None) for fold in folds]
    for weights in zip(*(model.parameters() for model in models), strict=True):
        weights[0].data.copy_(torch.stack(weights).mean(0))
    save_model(lambda folder: models[0].save(str(folder), create_model_card=False), work)


def _table(judged: JudgedPairs, folders: Sequence[Path], fold: Numbers, runtime: Runtime) -> pa.Table:
    """Score the pairs of each fold with the model in the corresponding folder (see `cosine_table`)."""
    from relabel.sources.models.encoder import SentenceEncoder

    groups, vectors = [np.flatnonzero(fold[judged.image] == k) for k in range(len(folders))], []
    with runtime.progress.bar("cosines of val pairs", len(judged.image), "captions") as bar:
        for folder, group in zip(folders, groups, strict=True):
            encoder = SentenceEncoder(folder, None, None, "float32", runtime)
            vectors.append(encoder.encode([judged.texts[i] for i in group], bar.advance).vectors)
    return tune_data.cosine_table(judged, np.concatenate(vectors)[np.argsort(np.concatenate(groups))], fold)


class UpperLayers:
    """Trainable last layers of a sentence encoder, applied to the cached output of the frozen layers for N texts.

    `layers`: number of trainable layers; 0 for all. Word embeddings are frozen; modules after the transformer are
    trained. `dtype`: dtype of products, and of the cached output; None for the fastest dtype of the hardware.

    `model`: the complete encoder. `learning`: the trainable parameters. `start`: their values in the base model.
    """

    def __init__(self, folder: Path, texts: Sequence[str], layers: int, dtype: str | None, runtime: Runtime) -> None:
        import torch

        self.device = pick_device(runtime.device)
        self.dtype = dtype or product_type("bfloat16", self.device)
        self._type = getattr(torch, self.dtype)
        self._autocast = partial(torch.autocast, self.device, self._type, enabled=self.dtype != "float32")
        self.model = load_model(folder, self.device, None).requires_grad_(False)
        self._inner: Any = getattr(self.model[0], "auto_model", torch.nn.Identity())
        modules = dict(self._inner.named_modules())
        self._place = next((name for name in _LAYERS if name in modules and "embeddings" in modules), "")
        if not self._place:
            raise CheckError("tuning needs a transformer with embeddings and a list of layers", where=str(folder))
        with quiet():
            with suppress(ValueError):  # raised by models with a single attention implementation
                # In bfloat16 on a CPU, the backward pass of torch's fused attention is 8 times slower.
                self._inner.set_attn_implementation("eager")
            tokens = self.model.preprocess([default_prompt(self.model) + text for text in texts])
        self._features = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        self._lengths = tokens["attention_mask"].sum(dim=1).numpy()
        # With one torch thread each, threads do not wait for each other, and results do not depend on their number.
        threads = runtime.threads if self.device == "cpu" else 1
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        every, cached, self._local = modules[self._place], torch.nn.Module(), threading.local()
        cached.forward = lambda *_, **__: self._local.hidden
        border = max(0, len(every) - layers) if layers else 0
        self._complete, self._upper = (modules["embeddings"], every), (cached, every[border:])
        self._use(modules["embeddings"], every[:border])
        with runtime.progress.bar("frozen layers", len(texts), "texts") as bar:
            self._hidden = self._map(partial(self._frozen_output, bar), np.arange(len(texts)))
        self._use(*self._upper)
        for module in (every[border:], *list(self.model)[1:]):
            module.requires_grad_(True)
        self.learning = [p for p in self.model.parameters() if p.requires_grad]
        self.start = [p.detach().clone() for p in self.learning]

    def vectors(self, texts: Numbers) -> Tensor:
        """Encode texts, given by number, (C,): float32 unit vectors, (C, D)."""
        import torch

        def encode(piece: Numbers) -> Tensor:
            hidden = [self._hidden[i] for i in piece]
            self._local.hidden = torch.nn.utils.rnn.pad_sequence(hidden, batch_first=True)
            vectors: Tensor = self._run(piece, self.model)["sentence_embedding"].float()
            return vectors

        return torch.nn.functional.normalize(torch.stack(self._map(encode, texts)), dim=-1)

    def save(self, folder: Path) -> None:
        """Write the complete encoder."""
        self._use(*self._complete)
        self.model.save(str(folder), create_model_card=False)
        self._use(*self._upper)

    def _use(self, embeddings: nn.Module, layers: nn.Module) -> None:
        """Replace the embeddings and the layers of the transformer."""
        holder, _, name = self._place.rpartition(".")
        self._inner.embeddings = embeddings
        setattr(self._inner.get_submodule(holder), name, layers)

    def _frozen_output(self, bar: ProgressBar, texts: Numbers) -> list[Tensor]:
        """Return the output of the frozen layers for each text, (L, D) each."""
        states = self._run(texts, self.model[0])["token_embeddings"].to(self._type)
        bar.advance(len(texts))
        # Remove padding, because other batches pad to other lengths.
        return [row[:length].clone() for row, length in zip(states, self._lengths[texts], strict=True)]

    def _map(self, function: Callable[[Numbers], Iterable[Tensor]], texts: Numbers) -> list[Tensor]:
        """Call a function on groups of texts of similar length, and return the results for all texts in order."""
        lengths = self._lengths[texts]
        order = np.argsort(lengths, kind="stable")
        groups = np.array_split(texts[order], -(-int(lengths.sum()) // _TOKENS))
        results = [result for group in self._pool.map(function, groups) for result in group]
        return [results[i] for i in np.argsort(order)]

    def _run(self, texts: Numbers, module: Any) -> Any:
        """Call a module on the tokens of the given texts."""
        width = int(self._lengths[texts].max())
        features = {name: values[texts, :width].to(self.device) for name, values in self._features.items()}
        with self._autocast():
            return module(features)


def train(
    encoder: UpperLayers, batches: Sequence[Batch], kinds: Mapping[str, float], rate: float, progress: Progress
) -> list[float]:
    """Train an encoder, starting from the base weights, and set the averaged weights. Returns the loss of each step.

    `kinds`: weight of each kind of pairs in the loss.
    """
    import torch

    weights, losses, steps = encoder.learning, list[float](), len(batches)
    first = steps - max(1, round(steps * _AVERAGED))
    with torch.no_grad():
        torch._foreach_copy_(weights, encoder.start)
    average = [torch.zeros_like(p) for p in weights]
    optimizer = torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.98), eps=1e-6, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(rate_factor, steps))
    with progress.bar("tune sbert", steps, "steps") as bar, inner_threads(1):
        for step, batch in enumerate(batches):
            loss = compute_loss(encoder.vectors(batch.texts), batch.pairs, kinds)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(weights, _GRADIENT_NORM)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
            if step >= first:
                # Running mean of the weights since step `first`.
                torch._foreach_lerp_(average, [p.detach() for p in weights], 1 / (step - first + 1))
            bar.advance(1)
    with torch.no_grad():
        torch._foreach_copy_(weights, average)
    return losses


def rate_factor(steps: int, step: int) -> float:
    """Return the factor of the learning rate at a step: linear warm-up, then cosine decay to 0."""
    rise = _WARM_UP * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))


def compute_loss(vectors: Tensor, pairs: Mapping[str, Pairs], kinds: Mapping[str, float]) -> Tensor:
    """Compute the loss of a batch of unit vectors, (C, D). `kinds`: weight of each kind of pairs."""
    total = vectors.sum() * 0
    for kind, group in pairs.items():
        score = vectors.new_tensor(group.score)
        # The coefficient is undefined for equal scores, and not informative for few pairs.
        if len(score) >= _LEAST_PAIRS and bool((score != score[0]).any()):
            total = total + kinds[kind] * (1 - _pearson(_cosines(vectors[group.left], vectors[group.right]), score))
    return total


def _cosines(left: Tensor, right: Tensor) -> Tensor:
    """Return the cosine of each pair of captions, caption and image, or images, (P,), from (P, A, D) and (P, B, D).

    For a caption and an image, it is the maximum over the image's captions. For two images, it is the mean of these
    maxima over the captions of both.
    """
    cosines = left @ right.transpose(1, 2)
    of_left = cosines.amax(dim=2).mean(dim=1)
    return of_left if left.shape[1] == 1 else (of_left + cosines.amax(dim=1).mean(dim=1)) / 2


def _pearson(x: Tensor, y: Tensor) -> Tensor:
    """Return Pearson's r."""
    a, b = x - x.mean(), y - y.mean()
    # The constant keeps the gradient finite if all cosines are equal.
    return (a * b).sum() / (a.square().sum() * b.square().sum() + 1e-12).sqrt()
