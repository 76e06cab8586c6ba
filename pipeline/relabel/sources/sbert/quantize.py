"""int8 sentence encoders: a model of OpenVINO, quantised after training by nncf, checked, and kept as an artefact.

The ranges of the activations are those of 300 captions of the dataset that needs the model first. The same model then
encodes all splits, datasets and queries, so that their vectors can be compared. Processors with VNNI compute int8
products exactly.
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
_CAPTIONS = 300  # nncf's recommendation; more did not raise a cosine
_PAIRS = 2000  # judged pairs of each task of CxC
_LEAST_COSINE = 0.997  # mean over the sample, of captions that nobody has judged
_TODO = "Use dtype float32 or bfloat16."
_LARGEST_LOSS = 0.002  # of Pearson's r with human scores


def int8_recipe(
    files: ModelFiles, prompt: str | None, max_length: int | None, corpus: Corpus, dataset: str, runtime: Runtime
) -> Recipe:
    """Return the recipe of an int8 model, calibrated on captions of all splits of a corpus.

    If the corpus holds COCO's val split, the model is checked against human scores. `dataset`: name of the corpus.
    """
    method = f"nncf post-training, transformer, {_CAPTIONS} captions"
    config = {"prompt": prompt, "max_length": max_length, "method": method}

    def fill(work: Work) -> None:
        from relabel.sources.models.embeddings import SavedEncoder
        from relabel.sources.models.encoder import SentenceEncoder

        encoder = SentenceEncoder(files.folder, prompt, max_length, "float32", runtime)
        # A small corpus is taken whole.
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
    """Quantise a model of OpenVINO whose only input is token ids."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    calibration = nncf.Dataset([np.array([ids], np.int64) for ids in tokens])
    # nncf shows its progress on standard output, which belongs to results.
    with redirect_stdout(StringIO()):
        return nncf.quantize(model, calibration, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(tokens))


def _check(encoder: Any, int8: Any, texts: list[str], corpus: Corpus, name: str) -> dict[str, Any]:
    """Compare an int8 model with its float32 model; return the figures, or raise if it loses too much."""
    plain, quantized = (one.encode(texts).vectors for one in (encoder, int8))
    cosines = np.einsum("nd,nd->n", plain, quantized, dtype=np.float64)
    figures: dict[str, Any] = {"cosine": {"mean": round(cosines.mean(), 5), "least": round(cosines.min(), 5)}}
    measured = [("mean cosine with float32", float(cosines.mean()), _LEAST_COSINE)]
    # Captions that nobody has judged have the cosine alone.
    with suppress(MissingError):
        judged, measured = read_judged_pairs(corpus, {}), []
        for task in ("sts", "sits"):
            draw = np.random.default_rng(0).permutation(len(judged.pairs[task].score))[:_PAIRS]
            pairs = judged.pairs[task].take(draw)
            before, after = (_agreement(one, judged.texts, pairs) for one in (encoder, int8))
            figures[task] = {"float32": round(before, 4), "int8": round(after, 4), "pairs": len(draw)}
            measured.append((f"Pearson's r of {task.upper()} on CxC val", after, before - _LARGEST_LOSS))
    for what, value, least in measured:
        if value < least:
            message = f"{name} loses too much in int8: {what} is {value:.4f}, and has to be {least:.4f}"
            raise CheckError(message, todo=_TODO)
    return figures


def _agreement(encoder: Any, texts: list[str], pairs: Pairs) -> Any:
    """Return Pearson's r of the largest cosines of judged pairs with their human scores."""
    used = texts_of([pairs])
    vectors = encoder.encode([texts[i] for i in used]).vectors
    return pearson(pairs.among(used).cosines(vectors).max(axis=1), pairs.score)
