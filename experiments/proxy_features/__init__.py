"""Proxy features: word vectors of one caption represent an image, and this caption is held out of everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from experiments.params import ProxyFeaturesParams
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import SPLITS
from relabel.corpus.params import IngestParams
from relabel.sources.models.files import find_model
from relabel.sources.models.loading import load_model
from relabel.sources.words.params import find_vectors
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.stages import Job, Session, open_corpus
from relabel.store.arrays import write_array
from relabel.store.artefact import Recipe
from relabel.store.files import write_text
from relabel.store.workdir import Work
from relabel_train.features import DESCRIPTION, FORMAT
from relabel_train.samplers import StableRandom

CAPTIONS, VECTORS = "captions.parquet", "features.npy"
Encode = Callable[[Sequence[str]], NDArray[np.float16]]
"""Encodes N texts as (N, vectors, D), padded with zeros."""
PROXY = (
    "No image was seen: each is stood in for by the word vectors of one of its own captions, which is held out of "
    "text, retrieval and labels. Figures compare losses and labels with each other, not with published models."
)


def proxy_folder(session: Session) -> Path:
    """Return the folder of a dataset's proxy features."""
    return session.folder() / "proxy"


def proxy_features(session: Session, params: ProxyFeaturesParams) -> Job:
    """Prepare to write proxy features of some images, and the captions of these images that are not held out.

    Raises
    ------
    RelabelError
        If the corpus, the word vectors or the model is missing.
    """
    corpus, runtime = open_corpus(session), session.runtime
    encode, encoder = open_encoder(params, runtime)
    rows = hold_out(corpus, {split: getattr(params, split) for split in SPLITS}, params.seed)
    config = {"version": 3, **params.model_dump(exclude={"encoder", "noise", "model"}), **encoder}

    def fill(work: Work) -> None:
        vectors = encode([corpus.texts[i] for i in rows])
        lengths = np.maximum(1, (vectors != 0).any(axis=2).sum(axis=1)).astype(np.int64)
        left = np.isin(corpus.image, corpus.image[rows])
        left[rows] = False
        captions = corpus.table.filter(pa.array(left)).select(["caption_id", "image_id", "split", "text"])
        about = {"proxy": PROXY, **encoder, "vectors": params.vectors, "width": vectors.shape[2]}
        images, held_out = [corpus.image_ids[i] for i in corpus.image[rows]], [corpus.caption_ids[i] for i in rows]
        body = {"format": FORMAT, "kind": "proxy", **about, "files": [VECTORS]}
        text = json.dumps(body | {"image_ids": images, "held_out": held_out}, indent=0) + "\n"
        work.file(CAPTIONS, lambda path: pq.write_table(captions, path, compression="zstd"))
        write_array(work, VECTORS.removesuffix(".npy"), vectors)
        write_array(work, "lengths", lengths)
        work.file(DESCRIPTION, lambda path: write_text(path, text))
        work.metadata |= about | {"images": len(rows)}

    recipe = Recipe("proxy_features", session.config.ingest.dataset, lambda: config, {"corpus": corpus.digest}, fill)
    return Job(session, proxy_folder(session), recipe, "python -m experiments.proxy_features")


def open_encoder(params: ProxyFeaturesParams, runtime: Runtime) -> tuple[Encode, dict[str, Any]]:
    """Return the function that encodes texts, and what identifies it."""
    if params.encoder == "glove":
        file = find_vectors("glove", runtime.data)
        about = {"model": file.name, "noise": params.noise, "sha256": file.sha256()}
        return partial(word_vectors, file, most=params.vectors, noise=params.noise, seed=params.seed), about
    files = find_model(params.model, runtime.progress)
    return partial(token_vectors, files.folder, most=params.vectors), {"model": params.model, "sha256": files.sha256()}


def word_vectors(
    file: WordVectorsFile, texts: Sequence[str], most: int, noise: float, seed: int
) -> NDArray[np.float16]:
    """Return the vectors of the first known words of texts with Gaussian noise, padded with zeros.

    Vectors are divided by their standard deviation over all components of all words of the texts. A text without a
    known word has one vector of noise.

    Returns
    -------
    (N, most, D) float16
    """
    words = [re.findall(r"[^\W_]+", text.lower()) for text in texts]
    known = read_word_vectors(file, set(chain.from_iterable(words)))
    rows = [[known.index[word] for word in of_text if word in known.index][:most] for of_text in words]
    out = np.random.default_rng(seed).normal(0, noise, (len(texts), most, known.width))
    for row, of_text in zip(out, rows, strict=True):
        row[: len(of_text)] += known.vectors[of_text] / known.vectors.std()
        row[max(1, len(of_text)) :] = 0
    return out.astype(np.float16)


def token_vectors(folder: Path, texts: Sequence[str], most: int) -> NDArray[np.float16]:
    """Return the last hidden states of the first tokens of texts, padded with zeros.

    Special tokens are left out; a text without words has the state of its closing one.

    Parameters
    ----------
    folder : Path
        A model of sentence-transformers.
    texts : sequence of str
        N texts.
    most : int
        Maximum number of vectors per text.

    Returns
    -------
    (N, most, D) float16
    """
    model = load_model(folder, "cpu", None)
    out = np.zeros((len(texts), most, model.get_embedding_dimension() or 0), np.float16)
    states = model.encode([text.strip() for text in texts], output_value="token_embeddings", show_progress_bar=False)
    for row, state in zip(out, states, strict=True):
        words = state[1 : max(2, len(state) - 1)][:most]
        row[: len(words)] = words.cpu().numpy()
    return out


def hold_out(corpus: Corpus, counts: dict[str, int], seed: int) -> NDArray[np.int64]:
    """Draw at most so many images per split, and return the row of one of the first five captions of each, ascending.

    Images with a single caption are skipped, since no caption of theirs would remain.
    """
    rows = []
    for number, split in enumerate(SPLITS):
        count, span = counts.get(split, 0), corpus.images([split])
        candidates = np.arange(span.start, span.stop)
        candidates = candidates[np.diff(corpus.indptr)[candidates] > 1]
        # A generator per split: the draw of one split does not depend on the counts of the others.
        random = StableRandom(seed, number)
        selected = np.sort(candidates[random.permutation(len(candidates))[:count]])
        # The held-out caption is one of the first five, which serve as references elsewhere.
        sizes = np.minimum(np.diff(corpus.indptr)[selected], 5)
        # 60 is a multiple of 1 to 5, so that the draw is uniform modulo every possible number of captions.
        rows.append(corpus.indptr[selected] + random.below(60, len(selected)) % sizes)
    return np.concatenate(rows).astype(np.int64)


def remaining_project(session: Session) -> Session:
    """Return the project of the captions that are not held out: a separate dataset, such as `coco_proxy`.

    Its labels pool the references of an image over the remaining captions. Text, neighbours and document frequencies
    exclude the held-out captions, which are in no file of that dataset. Trained models are those of the parent dataset.
    """
    ingest = session.config.ingest
    remaining = IngestParams(
        dataset=f"{ingest.dataset}_proxy",
        namespace=open_corpus(session).namespace,
        format="parquet",
        path=proxy_folder(session) / CAPTIONS,
        caption_id_column="caption_id",
        expected={},
    )
    return replace(session, config=session.config.model_copy(update={"ingest": remaining}), parent=session)
