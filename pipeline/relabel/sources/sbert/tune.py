"""`relabel tune sbert`: fine-tuning of a sentence encoder on human similarity scores, as a model for `sbert`.

The training data are the judged pairs of Crisscrossed Captions' val split. Pairs of captions (STS) are compared by
their cosine, and pairs of a caption and an image (SITS) by the largest cosine to the image's references. The scores of
the test split, which evaluate labels, are never read. Val and test share no image.

The last layers learn. The output of the layers below for a text is the same at every step, so it is computed once.

The loss is the disagreement of cosines with human scores, in the sense in which labels are evaluated: 1 - Pearson's r
within the batch, added up over the kinds of pairs. This is the squared error that remains after the best affine map of
the cosine. A map learned by gradient steps disturbs the cosines until it has converged, and gave worse labels. Pairs of
caption and image count twice: all of them, where the cosine of an image's own caption is 1, because a label finds it
among the references, and those of other images alone.

With folds, one model per fold is trained without the images of that fold, and the result is the average of their
weights (Wortsman et al., "Model soups", ICML 2022). The scores of each model for its held-out pairs are written to a
table, on which a `fuse` can be fitted without bias.
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
_SITS_WEIGHT = 0.7  # of all pairs of caption and image, and of those of other images; pairs of captions have 1
_SENTENCES_WEIGHT = 0.2  # of each set of sentence pairs
_LEAST_PAIRS = 4  # for a coefficient
_WARM_UP = 0.1  # share of the steps in which the rate rises; then it falls
_AVERAGED = 0.4  # share of the last steps whose weights are averaged
_WEIGHT_DECAY = 0.01
_GRADIENT_NORM = 1.0  # largest norm of a step's gradient
_TOKENS = 1024  # of texts that run together
_LEARNING = 3  # last layers that learn: half of all-MiniLM-L6-v2, whose other layers are then computed once
_LAYERS = ("encoder.layer", "transformer.layer", "layers")  # where encoders have their list of layers


class TuneSbertParams(Parameters):
    """Parameters of fine-tuning a sentence encoder."""

    base: str = Field(DEFAULT_MODEL, description="The model to start from: a folder, or a name on the hub.")
    folds: int | None = Field(None, ge=2, le=1000, description="Models to train, each without a fold, and to average.")
    epochs: int = Field(3, ge=1, le=10_000, description="Passes over the captions.")
    learning_rate: float = Field(1e-4, gt=0, le=1000, description="Maximum learning rate.")
    sis: float = Field(0.0, ge=0, le=1e6, description="Weight of pairs of images; those of captions have 1.")
    extra_datasets: tuple[SentenceSet, ...] = Field((), description="Train splits to learn from as well: stsb, sick.")
    seed: Seed = Field(1, description="Seed of batches and folds.")


def tune_sbert(params: TuneSbertParams, corpus: Corpus, runtime: Runtime) -> Recipe:
    """Return the recipe of a sentence encoder that is fine-tuned on CxC's val split.

    Its files are the model and, with folds, `fold-0`, ..., and `out_of_fold.parquet`.

    `corpus`: all of COCO, or at least its val images.
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
        whole = np.zeros(judged.images, np.int64)
        work.metadata["val"] = {"base": correlations(_table(judged, [base().folder], whole, runtime))}
        if params.folds:
            fold = tune_data.cut_folds(judged, params.folds, params.seed)
            parts = [work.subfolder(f"fold-{k}") for k in range(params.folds)]
            for k, part in enumerate(parts):
                _train(params, encoder, judged, np.flatnonzero(fold != k), part, runtime.progress)
            _merge(parts, work)
            work.table(OUT_OF_FOLD, lambda: _table(judged, [part.folder for part in parts], fold, runtime))
            work.metadata["val"]["out_of_fold"] = correlations(pq.read_table(work.folder / OUT_OF_FOLD))
        else:
            _train(params, encoder, judged, np.arange(judged.images), work, runtime.progress)
            # The model has seen these pairs, so that its figures are too high.
            work.metadata["val"]["seen"] = correlations(_table(judged, [work.folder], whole, runtime))

    config = partial(params.model_dump, mode="json", exclude={"base"})
    return Recipe(KIND, f"{Path(params.base).name} on cxc-val", config, inputs, fill)


def _train(
    params: TuneSbertParams, encoder: UpperLayers, judged: JudgedPairs, images: Numbers, work: Work, progress: Progress
) -> None:
    """Train on the pairs among some images and write the model, unless it exists."""
    # This file is written after the model's: a model without it is trained again.
    if work.done(TRAINING):
        return
    kinds = {"sts": 1.0, "sits": _SITS_WEIGHT, OTHER_IMAGES: _SITS_WEIGHT}
    kinds |= ({"sis": params.sis} if params.sis else {}) | dict.fromkeys(params.extra_datasets, _SENTENCES_WEIGHT)
    epochs = (tune_data.epoch_batches(judged, kinds, images, params.seed, epoch) for epoch in range(params.epochs))
    losses = train(encoder, list(chain.from_iterable(epochs)), kinds, params.learning_rate, progress)
    save_model(encoder.save, work)
    text = json.dumps({"dtype": encoder.dtype, "losses": losses})
    work.file(TRAINING, lambda path: path.write_text(text, encoding="utf-8"))


def _merge(parts: Sequence[Work], work: Work) -> None:
    """Write the model whose weights are the means of those of the folds' models."""
    import torch

    models = [load_model(part.folder, "cpu", None) for part in parts]
    for weights in zip(*(model.parameters() for model in models), strict=True):
        weights[0].data.copy_(torch.stack(weights).mean(0))
    save_model(lambda folder: models[0].save(str(folder), create_model_card=False), work)


def _table(judged: JudgedPairs, folders: Sequence[Path], fold: Numbers, runtime: Runtime) -> pa.Table:
    """Score the pairs inside each fold with the model in its folder (see `cosine_table`)."""
    from relabel.sources.models.encoder import SentenceEncoder

    parts, vectors = [np.flatnonzero(fold[judged.image] == k) for k in range(len(folders))], []
    with runtime.progress.bar("cosines of val pairs", len(judged.image), "captions") as bar:
        for folder, part in zip(folders, parts, strict=True):
            encoder = SentenceEncoder(folder, None, None, "float32", runtime)
            vectors.append(encoder.encode([judged.texts[i] for i in part], bar.advance).vectors)
    return tune_data.cosine_table(judged, np.concatenate(vectors)[np.argsort(np.concatenate(parts))], fold)


class UpperLayers:
    """The last layers of a sentence encoder, which learn, on the output of the layers below for each of N texts.

    `layers`: number of layers that learn; 0 for all. Word embeddings never learn, and modules after the transformer do.
    `dtype`: type of products, and of the output of the layers below; None for what the hardware multiplies fast.

    `model`: the complete encoder. `learning`: the parameters that learn. `start`: their values in the base.
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
            with suppress(ValueError):  # a model with a single attention implementation
                # In bfloat16, torch's fused attention runs backward 8 times slower on a CPU.
                self._inner.set_attn_implementation("eager")
            tokens = self.model.preprocess([default_prompt(self.model) + text for text in texts])
        self._features = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        self._lengths = tokens["attention_mask"].sum(dim=1).numpy()
        # Threads that never wait for each other inside an operator; the result is the same for any number of them.
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
        """Encode texts, (C,), as (C, D) float32 unit vectors."""
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
        """Reduce the transformer to some of its parts."""
        holder, _, name = self._place.rpartition(".")
        self._inner.embeddings = embeddings
        setattr(self._inner.get_submodule(holder), name, layers)

    def _frozen_output(self, bar: ProgressBar, texts: Numbers) -> list[Tensor]:
        """Return the output of the lower layers for each text, (L, D) each."""
        states = self._run(texts, self.model[0])["token_embeddings"].to(self._type)
        bar.advance(len(texts))
        # Copies without padding: a batch pads the text to another length.
        return [row[:length].clone() for row, length in zip(states, self._lengths[texts], strict=True)]

    def _map(self, function: Callable[[Numbers], Iterable[Tensor]], texts: Numbers) -> list[Tensor]:
        """Call a function on pieces of texts of similar length, and return its results for each text, in order."""
        lengths = self._lengths[texts]
        order = np.argsort(lengths, kind="stable")
        pieces = np.array_split(texts[order], -(-int(lengths.sum()) // _TOKENS))
        results = [one for piece in self._pool.map(function, pieces) for one in piece]
        return [results[i] for i in np.argsort(order)]

    def _run(self, texts: Numbers, module: Any) -> Any:
        """Call a module on the tokens of some texts."""
        width = int(self._lengths[texts].max())
        features = {name: values[texts, :width].to(self.device) for name, values in self._features.items()}
        with self._autocast():
            return module(features)


def train(
    encoder: UpperLayers, batches: Sequence[Batch], kinds: Mapping[str, float], rate: float, progress: Progress
) -> list[float]:
    """Train an encoder from its base's weights; it then holds the averaged ones. Returns the loss of each step.

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
    """Compute the loss of one batch of (C, D) unit vectors. `kinds`: weight of each kind of pairs."""
    total = vectors.sum() * 0
    for kind, one in pairs.items():
        score = vectors.new_tensor(one.score)
        # Fewer pairs, or equal scores, have no coefficient.
        if len(score) >= _LEAST_PAIRS and bool((score != score[0]).any()):
            total = total + kinds[kind] * (1 - _pearson(_cosines(vectors[one.left], vectors[one.right]), score))
    return total


def _cosines(left: Tensor, right: Tensor) -> Tensor:
    """Return the cosine of each pair of captions, caption and image, or images, (P,), of (P, A, D) and (P, B, D).

    It is the largest one to the captions of an image; of two images, the mean of this over the captions of both.
    """
    cosines = left @ right.transpose(1, 2)
    of_left = cosines.amax(dim=2).mean(dim=1)
    return of_left if left.shape[1] == 1 else (of_left + cosines.amax(dim=1).mean(dim=1)) / 2


def _pearson(x: Tensor, y: Tensor) -> Tensor:
    """Return Pearson's r."""
    a, b = x - x.mean(), y - y.mean()
    # The small constant keeps the gradient finite if all cosines are equal.
    return (a * b).sum() / (a.square().sum() * b.square().sum() + 1e-12).sqrt()
