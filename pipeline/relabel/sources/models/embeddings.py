"""Loading of sentence encoders, on a CPU from a converted model that the first load saves.

On a CPU, a model runs on OpenVINO in batches of equal length (`relabel.sources.models.forward`). torch and
sentence-transformers take seconds to import. They are only needed to convert a model, and to compute the expected
outputs for a few texts. Both are saved, so later processes load and check the model without these libraries.
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
"""Maximum number of saved encoders in the user's cache. The least recently used are deleted."""


class SavedEncoder(Encoder):
    """A sentence encoder on OpenVINO, loaded from the files of `SentenceEncoder.save`.

    Raises CheckError if its outputs differ from those of sentence-transformers.
    """

    def __init__(self, folder: Path, dtype: str, runtime: Runtime) -> None:
        super().__init__(Tokenizer.from_file(str(folder / TOKENIZER)), **read_json(folder / TEXTS))
        self.dtype, expected = product_type(dtype, self.device), np.load(folder / OUTPUTS)
        self._forward, self.width = openvino_forward(folder / MODEL, self.dtype, runtime.threads), expected.shape[1]
        check_outputs(self._forward, {"input_ids": self.tokens(PROBES)[0]}, expected, self.dtype)


def load_encoder(
    files: ModelFiles, prompt: str | None, max_length: int | None, dtype: str, runtime: Runtime
) -> Encoder:
    """Load a sentence encoder. On a CPU, the first call saves a converted model in the user's cache for later calls.

    If it cannot be saved or used, the model is loaded with sentence-transformers. Parameters as for SentenceEncoder.
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
        # The first process also uses the saved model, because its outputs can differ in the last bit after conversion.
        with suppress(ImportError, RuntimeError, RelabelError):
            build(out, recipe)
            delete_unused(out)
            return SavedEncoder(out, dtype, runtime)
    return load()


def delete_unused(used: Path) -> None:
    """Mark a saved encoder as used, and delete all but the `KEPT` most recently used encoders in its folder."""
    with suppress(OSError):
        os.utime(used)
        saved = [path.parent for path in used.parent.glob(f"*/{MANIFEST}")]
        for folder in sorted(saved, key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(folder)
