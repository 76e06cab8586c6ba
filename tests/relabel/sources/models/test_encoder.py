"""Contract: the encoder returns sentence-transformers' vectors, within 1e-5 of cosine in float32, for every model. Each
distinct text is encoded once. Bytes are equal for equal threads, and vectors within 1e-5 for others. Tokens beyond a
model's maximum length are dropped and counted. No process opens a connection, and models that are freed in any order
leave one that no signal ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.sources.models import forward
from relabel.sources.models.embeddings import KEPT, delete_unused
from relabel.sources.models.encoder import SentenceEncoder
from relabel.store.manifest import MANIFEST

ODD = ["A man rides a bike.", "a", "🐶🚲 two dogs 👨‍👩‍👧", "שני כלבים רצים بجانب البحر"]
ODD += ["a dog\x00 runs\x07", "two men " * 1000]


def encoder(folder: Path, dtype: str = "float32", threads: int = 2, **options: Any) -> SentenceEncoder:
    given = {"prompt": None, "max_length": None} | options
    return SentenceEncoder(folder, dtype=dtype, runtime=Runtime(device="cpu", threads=threads), **given)


def distance(subject: SentenceEncoder, folder: Path, **options: Any) -> float:
    """Return the largest 1 - cosine to sentence-transformers, with one text per batch, as the oracle."""
    model = SentenceTransformer(str(folder), device="cpu")
    expected = model.encode(ODD, batch_size=1, normalize_embeddings=True, **options)
    return float((1 - np.einsum("nd,nd->n", subject.encode(ODD).vectors, expected, dtype=np.float64)).max())


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("mpnet", "xlm-roberta", "distilbert", "albert")]


@pytest.mark.parametrize("kind", ["bert", "modernbert", *SLOW])
def test_any_architecture(make_model: Any, multiplies_bfloat16: bool, kind: str) -> None:
    folder = make_model(kind, "cls" if kind == "bert" else "mean", dense=kind == "mpnet")
    for dtype, least, most in (("float32", -1.0, 1e-6), ("bfloat16", 1e-7 if multiplies_bfloat16 else -1.0, 1e-3)):
        subject = encoder(folder, dtype)
        assert subject.backend == "openvino", subject.left_out
        assert least < distance(subject, folder) < most


def test_a_model_that_openvino_cannot_run_uses_its_own_code(make_model: Any, tmp_path: Path) -> None:
    prompts = make_model("bert", prompts={"short": "caption: "}, default_prompt_name="short")
    model = SentenceTransformer(str(prompts), device="cpu")
    model[1].include_prompt = False
    model.save(str(tmp_path / "model"))
    assert "openvino: the model excludes the prompt from pooling" in encoder(tmp_path / "model").left_out
    for folder in (make_model("static"), tmp_path / "model"):
        assert encoder(folder).backend == "sentence-transformers"
        assert distance(encoder(folder), folder) < 1e-6
    assert encoder(tmp_path / "model", prompt="").backend == "openvino"


def test_torch_replaces_an_openvino_that_is_missing_or_wrong(make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = forward.openvino_forward

    def wrong(*arguments: Any) -> Any:
        return lambda *inputs: -right(*arguments)(*inputs)

    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'openvino'")

    for instead, reason in ((wrong, "an output differs by"), (missing, "No module named 'openvino'")):
        monkeypatch.setattr(forward, "openvino_forward", instead)
        for dtype, tolerance in (("float32", 1e-6), ("bfloat16", 1e-3)):
            subject = encoder(make_model(), dtype)
            assert subject.backend == "torch"
            assert reason in subject.left_out[0]
            assert distance(subject, make_model()) < tolerance
    with pytest.raises(UsageError, match="No module named 'openvino'"):
        subject.convert()


WITHOUT_TORCH = """
import sys
from pathlib import Path
import numpy as np
from relabel.core.runtime import Runtime
from relabel.sources.models.embeddings import load_encoder
from relabel.sources.models.files import find_model

model, vectors, texts = find_model(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
encoder = load_encoder(model, None, 8, "float32", Runtime(device="cpu", threads=1))
np.save(vectors, encoder.encode(texts).vectors)
print(encoder.encode(texts).reading.truncated.tolist(), "torch" in sys.modules or "transformers" in sys.modules)
"""


def test_a_saved_model_loads_without_torch(make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, texts = tmp_path / "model", ["two dogs", "a cat " * 9]
    shutil.copytree(make_model("bert", prompts={"short": "A: "}, default_prompt_name="short"), folder)

    def load(number: int) -> str:
        command = [sys.executable, "-c", WITHOUT_TORCH, str(folder), str(tmp_path / f"{number}.npy"), *texts]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert [load(number) for number in (0, 1)] == ["[False, True] True", "[False, True] False"]
    first, second = (np.load(tmp_path / f"{number}.npy") for number in (0, 1))
    np.testing.assert_array_equal(first, second)
    expected = encoder(folder, max_length=8, threads=1).encode(texts).vectors
    np.testing.assert_allclose(first, expected, atol=1e-6)
    # Files that do not give the model's own outputs are not used, and another model is not looked up in them.
    for path in (tmp_path / "cache/relabel/encoders").glob("*/probes.npy"):
        np.save(path, -np.load(path))
    assert load(2) == "[False, True] True"
    shutil.copytree(make_model("bert", seed=1), folder, dirs_exist_ok=True)
    assert load(3) == "[False, True] True"
    assert np.abs(np.load(tmp_path / "3.npy") - first).max() > 1e-3


def test_the_cache_keeps_the_saved_models_that_were_used_last(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(KEPT + 2)]
    for age, folder in enumerate(folders):
        folder.mkdir()
        (folder / MANIFEST).write_text("{}")
        os.utime(folder, (age, age))
    (tmp_path / "unfinished").mkdir()
    os.utime(tmp_path / "unfinished", (0, 0))
    delete_unused(folders[1])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"unfinished", "1", *(str(number) for number in range(3, KEPT + 2))}


@pytest.mark.parametrize(
    ("processor", "dtype"),
    [
        ("vendor_id: GenuineIntel\nflags: avx512f avx512_bf16", "float32"),
        ("vendor_id: GenuineIntel\nflags: avx512f avx512_bf16 amx_bf16", "bfloat16"),
        ("vendor_id: AuthenticAMD\nflags: avx512f avx512_bf16", "bfloat16"),
        ("vendor_id: AuthenticAMD\nflags: avx2", "float32"),
    ],
)
def test_bfloat16_is_computed_where_it_is_faster(
    processor: str, dtype: str, make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: processor)
    fast = forward.fast_types.__wrapped__()
    monkeypatch.undo()
    monkeypatch.setattr(forward, "fast_types", lambda: fast)
    assert encoder(make_model(), "bfloat16").dtype == dtype


def test_prompts(make_model: Any) -> None:
    folder = make_model("bert", prompts={"short": "caption: "}, default_prompt_name="short")
    for prompt, used in ((None, "caption: "), ("query: ", "query: "), ("", "")):
        subject = encoder(folder, prompt=prompt)
        assert subject.prompt == used
        assert distance(subject, folder, prompt=used) < 1e-6
    assert distance(subject, folder) > 1e-4


def test_long_texts_are_truncated_and_counted(make_model: Any) -> None:
    texts = ["two " * count for count in (1, 6, 7, 2000)]
    for max_length, cut in ((8, [False, False, True, True]), (None, [False, False, False, True])):
        assert encoder(make_model(), max_length=max_length).encode(texts).reading.truncated.tolist() == cut
    cut_to_eight = encoder(make_model(), max_length=8).encode(texts[1:]).vectors  # six words and two special tokens
    np.testing.assert_allclose(cut_to_eight, cut_to_eight[[0, 0, 0]], atol=1e-6)
    # RoBERTa reserves two of its 66 positions.
    for folder, most in ((make_model(), 66), (make_model("xlm-roberta"), 64)):
        assert encoder(folder, max_length=most).max_length == most
        with pytest.raises(UsageError, match=f"{most} positions"):
            encoder(folder, max_length=most + 1)


def test_each_distinct_text_is_encoded_once(make_model: Any) -> None:
    subject, rows, done = encoder(make_model()), list[int](), list[int]()
    plain: Any = subject._forward
    subject._forward = lambda features, done: (rows.append(len(features["input_ids"])), plain(features, done))[1]
    encoded = subject.encode(["two dogs", "a cat", "two dogs", " two dogs ", "a cat"], done.append)
    assert rows == [2]
    assert sum(done) == 5
    np.testing.assert_array_equal(encoded.vectors[[0, 0]], encoded.vectors[[2, 3]])


@pytest.mark.slow
def test_threads_change_no_vector_beyond_rounding(minilm: Path, coco_slice: list[str]) -> None:
    single = encoder(minilm, threads=1)
    one, again = (single.encode(coco_slice).vectors for _ in range(2))
    three = encoder(minilm, threads=3).encode(coco_slice).vectors
    np.testing.assert_array_equal(one, again)
    np.testing.assert_allclose(one, three, atol=1e-5)


SCRIPT = """
import gc, importlib.util, signal, socket, subprocess, sys
from pathlib import Path
from relabel.core.runtime import Runtime
from relabel.sources.models.embeddings import SavedEncoder
from relabel.sources.models.encoder import SentenceEncoder
from relabel.store.manifest import MANIFEST
from relabel.sources.sbert.quantize import quantize_model

def refuse(*_, **__):
    print("opened a socket")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
assert importlib.util.find_spec("openvino_telemetry")
signal.signal(signal.SIGCHLD, lambda *_: None)
folder, runtime, texts = Path(sys.argv[1]), Runtime(device="cpu", threads=1), ["two dogs", "a cat on a mat"]
models = [SentenceEncoder(folder, None, None, "float32", runtime) for _ in "12"]
assert models[0].backend == "openvino"
while models:
    del models[0]
    gc.collect()
subprocess.run([sys.executable, "-c", ""], check=True)
encoder = SentenceEncoder(folder, None, None, "float32", runtime)
model, saved = quantize_model(encoder.convert(), encoder.tokens(texts)[0]), Path(sys.argv[2])
encoder.save(saved, model)
assert SavedEncoder(saved, "int8", runtime).encode(texts).vectors.shape == (2, 384)
assert sys.modules["openvino_telemetry"] is None
"""


@pytest.mark.slow
def test_a_process_opens_no_connection_and_survives_models_that_are_freed(minilm: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(minilm), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-3)])
def test_gpu_equals_cpu(minilm: Path, dtype: str, tolerance: float) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    subject = SentenceEncoder(minilm, None, None, dtype, Runtime(device="cuda"))
    assert subject.device == "cuda"
    assert distance(subject, minilm) < tolerance
