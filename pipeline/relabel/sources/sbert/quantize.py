"""int8 sentence encoders: a model of OpenVINO, quantised after training by nncf, checked, and kept as an artefact.

The ranges of the activations are those of 300 captions of the dataset that needs the model first. The same model then
encodes all splits, datasets and queries, so that their vectors can be compared. Processors with VNNI compute int8
products exactly; the features of the processor are recorded and not compared.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.numeric.statistics import pearson
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.models.files import ModelFiles
from relabel.sources.models.tasks import save_model
from relabel.store.artefact import Recipe
from relabel.store.workdir import Work

KIND = "int8_encoder"
MODEL = "model.xml"
_CAPTIONS = 300  # nncf's recommendation; more did not raise a cosine
_PAIRS = 2000  # judged pairs of each task of CxC
_LEAST_COSINE = 0.997  # mean over the sample, of captions that nobody has judged
_TODO = "Use dtype float32 or bfloat16."
_LARGEST_LOSS = 0.002  # of Pearson's r with human scores


class Sample(NamedTuple):
    """Captions that calibrate a model."""

    dataset: str
    texts: list[str]

    def record(self) -> dict[str, str]:
        """Return the entry of the sample in a manifest."""
        return {"dataset": self.dataset, "sha256": hashlib.sha256(json.dumps(self.texts).encode()).hexdigest()}


def draw_sample(corpus: Corpus, dataset: str) -> Sample:
    """Draw captions from all splits of a corpus; a small corpus is taken whole."""
    rows = np.random.default_rng(0).permutation(len(corpus))[:_CAPTIONS]
    return Sample(dataset, [corpus.texts[row] for row in np.sort(rows).tolist()])


def int8_recipe(
    files: ModelFiles,
    prompt: str | None,
    max_length: int | None,
    sample: Sample,
    corpus: Corpus,
    runtime: Runtime,
    recorded: dict[str, str] | None = None,
) -> Recipe:
    """Return the recipe of an int8 model.

    `corpus`: the corpus of the sample; if it holds COCO's val split, the model is checked against human scores.
    `recorded`: entry of the sample of an existing model, which another dataset has calibrated.
    """

    def semantic() -> dict[str, Any]:
        recipe = {"method": "nncf post-training, transformer", "captions": _CAPTIONS}
        return {"prompt": prompt, "max_length": max_length, "recipe": recipe, "sample": recorded or sample.record()}

    def fill(work: Work) -> None:
        from relabel.sources.models.encoder import SentenceEncoder
        from relabel.sources.models.forward import import_openvino, openvino_core

        encoder = SentenceEncoder(files.folder, prompt, max_length, "float32", runtime)
        if encoder.backend != "openvino":
            raise UsageError(f"{files.name} cannot run in int8 ({'; '.join(encoder.left_out)})", todo=_TODO)
        openvino, model = import_openvino(), quantize_model(encoder.convert(), encoder.tokens(sample.texts)[0])
        int8 = SentenceEncoder(files.folder, prompt, max_length, "int8", runtime, model)
        work.facts |= _check(encoder, int8, sample, corpus, files.name)
        work.runtime |= {"model": files.record(), "processor": openvino_core().get_property("CPU", "FULL_DEVICE_NAME")}
        work.runtime["features"] = openvino_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        save_model(work, lambda folder: openvino.save_model(model, folder / MODEL, compress_to_fp16=False))

    return Recipe(KIND, f"{files.name} in int8", semantic, {"base": files.sha256}, fill)


def quantize_model(model: Any, tokens: list[list[int]]) -> Any:
    """Quantise a model of OpenVINO whose only input is token ids."""
    try:
        import nncf
    except ImportError as error:
        todo = "Run `pip install 'relabel-itr[cpu]'`, or use dtype bfloat16."
        raise MissingError("int8 needs nncf, which is not installed", todo=todo) from error
    nncf.set_log_level(logging.ERROR)
    calibration = nncf.Dataset([np.array([ids], np.int64) for ids in tokens])
    # nncf shows its progress on standard output, which belongs to results.
    with redirect_stdout(StringIO()):
        return nncf.quantize(model, calibration, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(tokens))


def _check(encoder: Any, int8: Any, sample: Sample, corpus: Corpus, name: str) -> dict[str, Any]:
    """Compare an int8 model with its float32 model; return the figures, or raise if it loses too much."""
    from relabel.sources.sbert.tune_data import read_judged_set

    plain, quantized = (one.encode(sample.texts).vectors for one in (encoder, int8))
    cosines = np.einsum("nd,nd->n", plain, quantized, dtype=np.float64)
    figures: dict[str, Any] = {"cosine": {"mean": round(cosines.mean(), 5), "least": round(cosines.min(), 5)}}
    measured = [("mean cosine with float32", float(cosines.mean()), _LEAST_COSINE)]
    # Captions that nobody has judged have the cosine alone.
    with suppress(MissingError):
        judged, measured = read_judged_set(corpus, {}), []
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


def _agreement(encoder: Any, texts: list[str], pairs: Any) -> Any:
    """Return Pearson's r of the largest cosines of judged pairs with their human scores."""
    used = np.unique(np.concatenate([pairs.left.ravel(), pairs.right.ravel()]))
    vectors: NDArray[np.float32] = encoder.encode([texts[i] for i in used]).vectors
    left, right = (vectors[np.searchsorted(used, side)] for side in (pairs.left[:, 0], pairs.right))
    return pearson(np.einsum("pd,prd->pr", left, right).max(axis=1), pairs.score)
