"""int8 sentence encoders: post-training quantisation of an OpenVINO model with nncf, with a quality check.

The ranges of the activations are calibrated on 300 captions of the dataset that needs the model first. The same model
then encodes all splits, datasets and queries, because vectors of different calibrations are not comparable. Processors
with VNNI compute int8 products exactly.
"""

from __future__ import annotations

import logging
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from relabel.core.errors import CheckError, MissingError
from relabel.core.numeric.statistics import pearson
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.models.files import ModelFiles
from relabel.sources.models.loading import save_model
from relabel.sources.sbert.tune_data import Pairs, read_judged_pairs, texts_of
from relabel.store.artefact import Recipe
from relabel.store.workdir import Work

INT8 = "int8"
KIND = "int8_encoder"
WEIGHTS = "model.bin"
_CAPTIONS = 300  # nncf's recommendation; more did not increase the cosines
_PAIRS = 2000  # number of judged pairs per CxC task
_LEAST_COSINE = 0.997  # minimum mean cosine over the sample, for captions without human scores
_HINT = "Use dtype float32 or bfloat16."
_LARGEST_LOSS = 0.002  # maximum decrease of Pearson's r with human scores


def int8_recipe(
    files: ModelFiles, prompt: str | None, max_length: int | None, corpus: Corpus, dataset: str, runtime: Runtime
) -> Recipe:
    """Return the recipe of an int8 model, calibrated on captions of all splits of a corpus.

    If the corpus contains COCO's val split, the model is checked with human scores. `dataset`: name of the corpus.
    """
    method = f"nncf post-training, transformer, {_CAPTIONS} captions"
    config = {"prompt": prompt, "max_length": max_length, "method": method}

    def fill(work: Work) -> None:
        from relabel.sources.models.embeddings import SavedEncoder
        from relabel.sources.models.encoder import SentenceEncoder

        encoder = SentenceEncoder(files.folder, prompt, max_length, "float32", runtime)
        rows = np.sort(np.random.default_rng(0).permutation(len(corpus))[:_CAPTIONS])
        texts = [corpus.texts[row] for row in rows.tolist()]
        model = quantize_model(encoder.convert(), encoder.tokens(texts)[0])

        def save(folder: Path) -> None:
            encoder.save(folder, model)
            int8 = SavedEncoder(folder, INT8, runtime)
            work.metadata |= {"calibrated_on": dataset} | _check(encoder, int8, texts, corpus, files.name)

        work.provenance["model"] = files.record()
        save_model(save, work)

    return Recipe(KIND, f"{files.name} in int8", lambda: config, {"base": files.sha256}, fill)


def quantize_model(model: Any, tokens: list[list[int]]) -> Any:
    """Quantise an OpenVINO model with token ids as its only input."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    calibration = nncf.Dataset([np.array([ids], np.int64) for ids in tokens])
    # Suppress nncf's progress on standard output, because it is for results.
    with redirect_stdout(StringIO()):
        return nncf.quantize(model, calibration, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(tokens))


def _check(encoder: Any, int8: Any, texts: list[str], corpus: Corpus, name: str) -> dict[str, Any]:
    """Compare an int8 model with its float32 model. Returns the results, or raises if the loss is too large."""
    plain, quantized = (model.encode(texts).vectors for model in (encoder, int8))
    cosines = np.einsum("nd,nd->n", plain, quantized, dtype=np.float64)
    figures: dict[str, Any] = {"cosine": {"mean": round(cosines.mean(), 5), "least": round(cosines.min(), 5)}}
    measured = [("mean cosine with float32", float(cosines.mean()), _LEAST_COSINE)]
    # If the corpus has human scores, compare the correlation with them instead of the cosine.
    with suppress(MissingError):
        judged, measured = read_judged_pairs(corpus, {}), []
        for task in ("sts", "sits"):
            draw = np.random.default_rng(0).permutation(len(judged.pairs[task].score))[:_PAIRS]
            pairs = judged.pairs[task].take(draw)
            before, after = (_agreement(model, judged.texts, pairs) for model in (encoder, int8))
            figures[task] = {"float32": round(before, 4), "int8": round(after, 4), "pairs": len(draw)}
            measured.append((f"Pearson's r of {task.upper()} on CxC val", after, before - _LARGEST_LOSS))
    for quantity, value, minimum in measured:
        if value < minimum:
            message = f"{name} loses too much in int8: {quantity} is {value:.4f}, but must be at least {minimum:.4f}"
            raise CheckError(message, hint=_HINT)
    return figures


def _agreement(encoder: Any, texts: list[str], pairs: Pairs) -> Any:
    """Return Pearson's r between the maximum cosines of judged pairs and their human scores."""
    used = texts_of([pairs])
    vectors = encoder.encode([texts[i] for i in used]).vectors
    return pearson(pairs.among(used).cosines(vectors).max(axis=1), pairs.score)
