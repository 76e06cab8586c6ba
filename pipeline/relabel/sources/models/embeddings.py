"""Sentence encoders, loaded from the files that the first load saves.

On a CPU a model runs on OpenVINO, in batches of equal length (`relabel.sources.models.forward`). torch and
sentence-transformers take seconds to import. They are needed only to convert a model, and to compute the outputs that
the converted model must have for a few texts. Both are saved, so later processes load and compare without them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from relabel.core.errors import RelabelError
from relabel.core.parsing import read_json
from relabel.core.runtime import Runtime, pick_device
from relabel.sources.models.base import MODEL, OUTPUTS, TEXTS, TOKENIZER, Encoder
from relabel.sources.models.files import ModelFiles
from relabel.sources.models.forward import PROBES, check_outputs, openvino_forward, product_type
from relabel.sources.models.loading import save_model
from relabel.store.artefact import Recipe, build
from relabel.store.files import cache_folder
from relabel.store.manifest import MANIFEST

if TYPE_CHECKING:
    from relabel.sources.models.encoder import SentenceEncoder

KIND = "openvino_encoder"
KEPT = 16
"""Saved encoders that stay in the user's cache: those used last."""


class SavedEncoder(Encoder):
    """A sentence encoder of OpenVINO, from the files of `SentenceEncoder.save`.

    Raises CheckError if its outputs differ from those of the model's own code.
    """

    def __init__(self, folder: Path, dtype: str, runtime: Runtime) -> None:
        super().__init__(Tokenizer.from_file(str(folder / TOKENIZER)), **read_json(folder / TEXTS))
        self.dtype, expected = product_type(dtype, self.device), np.load(folder / OUTPUTS)
        self._forward, self.width = openvino_forward(folder / MODEL, self.dtype, runtime.threads), expected.shape[1]
        check_outputs(self._forward, {"input_ids": self.tokens(PROBES)[0]}, expected, self.dtype)


def load_encoder(
    files: ModelFiles, prompt: str | None, max_length: int | None, dtype: str, runtime: Runtime
) -> Encoder:
    """Load a sentence encoder (parameters as for SentenceEncoder), on a CPU from files that the first load saves.

    They lie in the user's cache. If they cannot be written or used, the model is loaded by sentence-transformers.
    """

    @cache
    def load() -> SentenceEncoder:
        from relabel.sources.models.encoder import SentenceEncoder

        return SentenceEncoder(files.folder, prompt, max_length, dtype, runtime)

    if pick_device(runtime.device) == "cpu":
        config = {"prompt": prompt, "max_length": max_length}
        name = hashlib.sha256(json.dumps([str(files.folder), *config.values()]).encode()).hexdigest()
        out, inputs = cache_folder("encoders") / name[:16], {"base": files.sha256}
        recipe = Recipe(KIND, files.name, lambda: config, inputs, lambda work: save_model(load().save, work))
        # Also the first process computes with what is saved: a converted model differs from it in the last bit.
        with suppress(ImportError, RuntimeError, RelabelError):
            build(out, recipe)
            delete_unused(out)
            return SavedEncoder(out, dtype, runtime)
    return load()


def delete_unused(used: Path) -> None:
    """Mark a saved encoder as used now, and delete those of its folder that are not among the last `KEPT` in use."""
    with suppress(OSError):
        os.utime(used)
        saved = [path.parent for path in used.parent.glob(f"*/{MANIFEST}")]
        for folder in sorted(saved, key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(folder)
