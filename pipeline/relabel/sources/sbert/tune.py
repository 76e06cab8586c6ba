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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, field_validator

from relabel.core.errors import CheckError
from relabel.core.numeric.threads import inner_threads
from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import ProgressBar, Runtime, pick_device
from relabel.corpus import Corpus
from relabel.datasets.cxc import sha256
from relabel.sources.models.files import DEFAULT_MODEL, ModelFiles, find_model
from relabel.sources.models.tasks import save_model
from relabel.sources.sbert.tune_data import (
    OTHER_IMAGES,
    Batch,
    JudgedSet,
    Numbers,
    SentenceSet,
    Term,
    correlations,
    cosine_table,
    cut_folds,
    epoch_batches,
    find_sentence_pairs,
    read_judged_set,
)
from relabel.store.artefact import Inputs, Recipe
from relabel.store.files import sha256_file
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from torch import Tensor, nn

KIND = "sentence_encoder"
FOLDS = "folds.json"
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
_LAYERS = ("encoder.layer", "transformer.layer", "layers")  # where encoders have their list of layers


class TuneSbertParams(Parameters):
    """Parameters of fine-tuning a sentence encoder."""

    base: str = Field(DEFAULT_MODEL, description="The model to start from: a folder, or a name on the hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; null for the local copy.")
    folds: int = Field(
        0,
        ge=0,
        le=1000,
        description="Number of folds. The result is the average of models trained without each; 0 trains one on all.",
    )
    layers: int = Field(3, ge=0, le=1000, description="Number of layers that learn, counted from the last; 0 for all.")
    epochs: int = Field(3, ge=1, le=10_000, description="Passes over the captions.")
    rate: float = Field(1e-4, gt=0, le=1000, description="Largest learning rate.")
    distance: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Position of the result between the base (0) and the trained weights (1), as in WiSE-FT.",
    )
    sis: float = Field(0.0, ge=0, le=1e6, description="Weight of pairs of images; those of captions have 1.")
    also: tuple[SentenceSet, ...] = Field(
        (), description="Sentence pairs to learn from as well: the train splits of stsb and sick."
    )
    seed: Seed = Field(1, description="Seed of batches and folds.")

    @field_validator("folds")
    @classmethod
    def _check_folds(cls, folds: int) -> int:
        if folds == 1:
            raise ValueError("one fold holds out everything: use 0, or 2 or more")
        return folds


def tune_sbert(params: TuneSbertParams, corpus: Corpus, runtime: Runtime) -> Recipe:
    """Return the recipe of a sentence encoder that is fine-tuned on CxC's val split.

    Its files are the model and, with folds, `fold-0`, ..., `folds.json` and `out_of_fold.parquet`.

    `corpus`: all of COCO, or at least its val images.
    """
    base = cache(lambda: find_model(params.base, params.revision, runtime.progress))
    sentences = cache(lambda: {name: find_sentence_pairs(name, runtime) for name in params.also})
    judged = cache(lambda: read_judged_set(corpus, sentences()))
    inputs: Inputs = {"base": lambda: base().sha256(), "captions": lambda: judged().digest}
    inputs |= {f"cxc {t} val": partial(sha256, t, "val") for t in ("sts", "sits", *(("sis",) if params.sis else ()))}
    inputs |= {f"{name} train": lambda name=name: sha256_file(sentences()[name]) for name in params.also}  # type: ignore[misc]
    return Recipe(
        KIND,
        f"{Path(params.base).name} on cxc-val",
        partial(params.model_dump, mode="json", exclude={"base", "revision"}),
        inputs,
        lambda work: _Tuner(params, base(), judged(), runtime).fill(work),
    )


@dataclass
class _Tuner:
    """Training of the model, or of the models of the folds and their average."""

    params: TuneSbertParams
    base: ModelFiles
    judged: JudgedSet
    runtime: Runtime

    @cached_property
    def weights(self) -> dict[str, float]:
        """Weight of each kind of pairs in the loss."""
        sis = {"sis": self.params.sis} if self.params.sis else {}
        further = dict.fromkeys(self.params.also, _SENTENCES_WEIGHT)
        return {"sts": 1.0, "sits": _SITS_WEIGHT, OTHER_IMAGES: _SITS_WEIGHT} | sis | further

    @cached_property
    def encoder(self) -> UpperLayers:
        """The encoder, which all folds share."""
        from relabel.sources.models.loading import training_type

        dtype = training_type("auto", pick_device(self.runtime.device))
        return UpperLayers(self.base.folder, self.judged.texts, self.params.layers, dtype, self.runtime)

    def fill(self, work: Work) -> None:
        """Train, and write files, scores and facts."""
        p, images = self.params, np.arange(len(self.judged.image_ids))
        whole, names = np.zeros_like(images), [f"fold-{k}" for k in range(p.folds)]
        work.facts["base"] = self.base.name
        work.facts["trained_on"] = {
            "dataset": "Crisscrossed Captions val",
            "images": len(images),
            "captions": len(self.judged.image),
            "pairs": {kind: len(self.judged.pairs[kind].score) for kind in self.weights},
        }
        work.facts["val"] = {"base": correlations(self._table([self.base.folder], whole))}
        if p.folds:
            fold = cut_folds(self.judged, p.folds, p.seed)
            for k, name in enumerate(names):
                self._train(work, f"{name}/", np.flatnonzero(fold != k), f"tune sbert, fold {k + 1} of {p.folds}")
            self._merge(work, names)
            ids = dict(zip(self.judged.image_ids, fold.tolist(), strict=True))
            text = json.dumps({"folds": p.folds, "seed": p.seed, "images": ids}, indent=0)
            work.file(FOLDS, lambda path: path.write_text(text, encoding="utf-8"))
            work.table(OUT_OF_FOLD, lambda: self._table([work.folder / name for name in names], fold))
            work.facts["val"]["out_of_fold"] = correlations(pq.read_table(work.folder / OUT_OF_FOLD))
        else:
            self._train(work, "", images, "tune sbert")
            # The model has seen these pairs, so that its figures are too high.
            work.facts["val"]["seen"] = correlations(self._table([work.folder], whole))
        summary = json.loads((work.folder / (names or [""])[0] / TRAINING).read_text(encoding="utf-8"))
        work.facts["loss"] = [round(x, 5) for x in summary["losses"]]
        work.runtime |= {"model": self.base.record(), "threads": self.runtime.threads, "device": self.runtime.device}

    def _train(self, work: Work, prefix: str, images: Numbers, title: str) -> None:
        """Train on the pairs among some images and write the model below the prefix, unless it exists."""
        # The summary is written after the model's files: a model without it is trained again.
        if work.done(prefix + TRAINING):
            return
        p, encoder = self.params, self.encoder
        epochs = [epoch_batches(self.judged, self.weights, images, p.seed, epoch) for epoch in range(p.epochs)]
        losses = train(encoder, epochs, p, self.runtime, title)
        with encoder.complete():
            _save(work, prefix, encoder.model)
        steps = sum(map(len, epochs))
        text = json.dumps({"dtype": encoder.dtype, "losses": losses, "images": len(images), "steps": steps})
        work.file(prefix + TRAINING, lambda path: path.write_text(text, encoding="utf-8"))

    def _merge(self, work: Work, names: Sequence[str]) -> None:
        """Write the model whose weights are the means of those of the folds' models."""
        import torch

        from relabel.sources.models.loading import load_model

        models = [load_model(work.folder / name, "cpu", None) for name in names]
        with torch.no_grad():
            for weights in zip(*(model.parameters() for model in models), strict=True):
                weights[0].copy_(torch.stack(weights).mean(0))
        _save(work, "", models[0])

    def _table(self, folders: Sequence[Path], fold: Numbers) -> pa.Table:
        """Score the pairs inside each fold with the model in its folder (see `cosine_table`)."""
        from relabel.sources.models.encoder import SentenceEncoder

        fold_of = fold[self.judged.image]
        parts, vectors = [np.flatnonzero(fold_of == k) for k in range(len(folders))], []
        with self.runtime.progress.bar("cosines of val pairs", len(fold_of), "captions") as bar:
            for folder, part in zip(folders, parts, strict=True):
                encoder = SentenceEncoder(folder, None, None, "float32", self.runtime)
                vectors.append(encoder.encode([self.judged.texts[i] for i in part], bar.advance).vectors)
        return cosine_table(self.judged, np.concatenate(vectors)[np.argsort(np.concatenate(parts))], fold)


def _save(work: Work, prefix: str, model: Any) -> None:
    """Write a model as sentence-transformers saves it."""
    from relabel.sources.models.loading import quiet

    with quiet():
        save_model(work, lambda folder: model.save(str(folder), create_model_card=False), prefix)


class UpperLayers:
    """The last layers of a sentence encoder, which learn, on the output of the layers below for each of N texts.

    `layers`: number of layers that learn; 0 for all. Word embeddings never learn, and modules after the transformer do.
    `dtype`: type of products, and of the output of the layers below.

    `model`: the complete encoder. `learning`: the parameters that learn. `start`: their values in the base.
    """

    def __init__(self, folder: Path, texts: Sequence[str], layers: int, dtype: str, runtime: Runtime) -> None:
        import torch

        from relabel.sources.models.loading import default_prompt, load_model, quiet

        self.device, self.dtype = pick_device(runtime.device), dtype
        self.model = load_model(folder, self.device, None).requires_grad_(False)
        self._inner: Any = getattr(self.model[0], "auto_model", torch.nn.Identity())
        modules = dict(self._inner.named_modules())
        self._place = next((name for name in _LAYERS if name in modules and "embeddings" in modules), "")
        if not self._place:
            raise CheckError("tuning needs a transformer with embeddings and a list of layers", where=str(folder))
        with quiet(), suppress(ValueError):  # a model with a single attention implementation
            # In bfloat16, torch's fused attention runs backward 8 times slower on a CPU.
            self._inner.set_attn_implementation("eager")
        with quiet():  # newer releases deprecate the method
            tokens = self.model.tokenize([default_prompt(self.model) + text for text in texts])
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
            self._hidden = self._frozen_output(bar)
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

        order, pieces = self._pieces(texts)
        vectors = torch.cat(list(self._pool.map(encode, pieces)))
        return torch.nn.functional.normalize(vectors[np.argsort(order)], dim=-1)

    @contextmanager
    def complete(self) -> Iterator[None]:
        """Make `model` the complete encoder within the context."""
        self._use(*self._complete)
        yield
        self._use(*self._upper)

    def _use(self, embeddings: nn.Module, layers: nn.Module) -> None:
        """Reduce the transformer to some of its parts."""
        holder, _, name = self._place.rpartition(".")
        self._inner.embeddings = embeddings
        setattr(self._inner.get_submodule(holder), name, layers)

    def _frozen_output(self, bar: ProgressBar) -> list[Tensor]:
        """Return the output of the lower layers for each text, (L, D) each."""
        import torch

        def encode(piece: Numbers) -> list[Tensor]:
            with torch.no_grad():
                states = self._run(piece, self.model[0])["token_embeddings"].to(getattr(torch, self.dtype))
            bar.advance(len(piece))
            # Copies without padding: a batch pads the text to another length.
            return [row[:length].clone() for row, length in zip(states, self._lengths[piece], strict=True)]

        order, pieces = self._pieces(np.arange(len(self._lengths)))
        hidden = [row for rows in self._pool.map(encode, pieces) for row in rows]
        return [hidden[i] for i in np.argsort(order)]

    def _pieces(self, texts: Numbers) -> tuple[Numbers, list[Numbers]]:
        """Sort texts by length, and divide them into pieces of equal numbers of texts, with little padding."""
        lengths = self._lengths[texts]
        order = np.argsort(lengths, kind="stable")
        return order, np.array_split(texts[order], -(-int(lengths.sum()) // _TOKENS))

    def _run(self, texts: Numbers, module: Any) -> Any:
        """Call a module on the tokens of some texts."""
        import torch

        width = int(self._lengths[texts].max())
        features = {name: values[texts, :width].to(self.device) for name, values in self._features.items()}
        with torch.autocast(self.device, getattr(torch, self.dtype), enabled=self.dtype != "float32"):
            return module(features)


def train(
    encoder: UpperLayers, epochs: Sequence[Sequence[Batch]], params: TuneSbertParams, runtime: Runtime, title: str
) -> list[float]:
    """Train an encoder from its base's weights; it then holds the averaged ones. Returns the mean loss of each epoch.

    `title`: of the progress bar.
    """
    import torch

    weights, steps = encoder.learning, sum(map(len, epochs))
    first = steps - max(1, round(steps * _AVERAGED))
    step, losses = 0, []
    with torch.no_grad():
        torch._foreach_copy_(weights, encoder.start)
    average = [torch.zeros_like(p) for p in weights]
    optimizer = torch.optim.AdamW(weights, lr=params.rate, betas=(0.9, 0.98), eps=1e-6, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(rate_factor, steps))
    with runtime.progress.bar(title, steps, "steps") as bar, inner_threads(1):
        for batches in epochs:
            total = 0.0
            for batch in batches:
                loss = compute_loss(encoder.vectors(batch.texts), batch.terms)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(weights, _GRADIENT_NORM)
                optimizer.step()
                schedule.step()
                if step >= first:
                    # Running mean of the weights since step `first`.
                    torch._foreach_lerp_(average, [p.detach() for p in weights], 1 / (step - first + 1))
                step, total = step + 1, total + float(loss.detach())
                bar.advance(1)
            losses.append(total / len(batches))
    with torch.no_grad():
        for weight, start, mean in zip(weights, encoder.start, average, strict=True):
            weight.copy_(torch.lerp(start, mean, params.distance))
    return losses


def rate_factor(steps: int, step: int) -> float:
    """Return the factor of the learning rate at a step: linear warm-up, then cosine decay to 0."""
    rise = _WARM_UP * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))


def compute_loss(vectors: Tensor, terms: Sequence[Term]) -> Tensor:
    """Compute the loss of one batch of (C, D) unit vectors."""
    total = vectors.sum() * 0
    for term in terms:
        left, right = (vectors[side] for side in (term.left, term.right))
        score = vectors.new_tensor(term.score)
        # Fewer pairs, or equal scores, have no coefficient.
        if len(score) >= _LEAST_PAIRS and not bool((score == score[0]).all()):
            total = total + term.weight * (1 - _pearson(_cosines(left, right), score))
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
