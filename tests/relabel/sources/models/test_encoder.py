"""Contract: the encoder returns sentence-transformers' vectors, within 1e-5 of cosine in float32, for every model. Each
distinct text is encoded once. Bytes are equal for equal threads, and vectors within 1e-5 for others. Tokens beyond a
model's maximum length are dropped and counted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.sources.cosine import ComputeType
from relabel.sources.models import forward
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.models.loading import load_model

ODD = [
    "A man rides a bike.",
    "  A man rides a bike. \n",
    "a",
    "🐶🚲 two dogs 👨‍👩‍👧",
    "שני כלבים רצים بجانب البحر",
    "a dog\x00 runs\x07",
    "two men " * 1000,
    "!!!",
]


def encoder(
    folder: Path,
    dtype: ComputeType = "float32",
    prompt: str | None = None,
    max_length: int | None = None,
    threads: int = 2,
) -> SentenceEncoder:
    return SentenceEncoder(folder, prompt, max_length, dtype, Runtime(device="cpu", threads=threads))


def expected_vectors(folder: Path, texts: list[str], **options: Any) -> NDArray[np.float32]:
    """Encode by sentence-transformers, one text per batch, as the oracle."""
    model = SentenceTransformer(str(folder), device="cpu")
    stripped = [text.strip() for text in texts]
    return np.asarray(model.encode(stripped, batch_size=1, normalize_embeddings=True, **options), np.float32)


def largest_cosine_distance(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float((1 - np.einsum("nd,nd->n", a, b, dtype=np.float64)).max())


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 1e-4)])
def test_minilm_equals_sentence_transformers(
    minilm: Path, coco_slice: list[str], dtype: ComputeType, tolerance: float
) -> None:
    subject = encoder(minilm, dtype)
    encoded = subject.encode(coco_slice)
    assert subject.backend == "openvino"
    assert (subject.width, subject.max_length, subject.prompt) == (384, 256, "")
    assert encoded.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(encoded.vectors, axis=1), 1, atol=1e-6)
    expected = SentenceTransformer(str(minilm), device="cpu").encode(coco_slice)
    assert largest_cosine_distance(encoded.vectors, expected) < tolerance
    if dtype == "bfloat16":
        assert largest_cosine_distance(encoded.vectors, expected) > 1e-7, "this was not computed in bfloat16"


@pytest.mark.parametrize("kind", ["bert", "mpnet", "xlm-roberta", "distilbert", "modernbert", "albert"])
def test_any_architecture(make_model: Any, kind: str) -> None:
    folder = make_model(kind, "cls" if kind == "bert" else "mean", dense=kind == "mpnet")
    for dtype, tolerance in (("float32", 1e-6), ("bfloat16", 1e-3)):
        subject = encoder(folder, dtype)  # type: ignore[arg-type]
        assert subject.backend == "openvino", subject.left_out
        assert largest_cosine_distance(subject.encode(ODD).vectors, expected_vectors(folder, ODD)) < tolerance


def test_a_model_that_openvino_cannot_run_uses_its_own_code(make_model: Any, minilm: Path, tmp_path: Path) -> None:
    prompts = {"short": "caption: "}
    model = SentenceTransformer(str(minilm), device="cpu", prompts=prompts, default_prompt_name="short")
    model[1].include_prompt = False
    model.save(str(tmp_path / "model"))
    assert encoder(tmp_path / "model").left_out == "the model pools without the prompt"
    for folder in (make_model("static"), tmp_path / "model"):
        subject = encoder(folder)
        assert subject.backend == "sentence-transformers"
        assert largest_cosine_distance(subject.encode(ODD[:4]).vectors, expected_vectors(folder, ODD[:4])) < 1e-6
    assert encoder(tmp_path / "model", prompt="").backend == "openvino"


def test_prompts(make_model: Any) -> None:
    folder = make_model("bert", prompts={"short": "caption: "}, default_prompt_name="short")
    by_default, explicit, none = encoder(folder), encoder(folder, prompt="query: "), encoder(folder, prompt="")
    assert [e.prompt for e in (by_default, explicit, none)] == ["caption: ", "query: ", ""]
    assert largest_cosine_distance(by_default.encode(ODD).vectors, expected_vectors(folder, ODD)) < 1e-6
    assert largest_cosine_distance(explicit.encode(ODD).vectors, expected_vectors(folder, ODD, prompt="query: ")) < 1e-6
    assert largest_cosine_distance(none.encode(ODD).vectors, expected_vectors(folder, ODD, prompt="")) < 1e-6
    assert largest_cosine_distance(none.encode(ODD).vectors, by_default.encode(ODD).vectors) > 1e-4


def test_long_texts_are_truncated_and_counted(minilm: Path) -> None:
    texts = ["two " * count for count in (1, 6, 7, 2000)]
    for max_length, cut in ((8, [False, False, True, True]), (None, [False, False, False, True])):
        subject = encoder(minilm, max_length=max_length)
        encoded = subject.encode(texts)
        assert encoded.truncated.tolist() == cut
        assert np.isfinite(encoded.vectors).all()
    cut_to_eight = encoder(minilm, max_length=8).encode(texts[1:]).vectors  # six words and two special tokens
    np.testing.assert_allclose(cut_to_eight, cut_to_eight[[0, 0, 0]], atol=1e-6)
    with pytest.raises(UsageError, match="512 positions"):
        encoder(minilm, max_length=513)
    assert encoder(minilm, max_length=512).max_length == 512


def test_positions_reserved_by_roberta_are_not_used(make_model: Any) -> None:
    folder = make_model("xlm-roberta")
    with pytest.raises(UsageError, match="64 positions"):
        encoder(folder, max_length=65)


def test_each_distinct_text_is_encoded_once(make_model: Any) -> None:
    subject, rows, done = encoder(make_model()), list[int](), list[int]()
    plain: Any = subject._forward
    subject._forward = lambda features, done: (rows.append(len(features["input_ids"])), plain(features, done))[1]
    encoded = subject.encode(["two dogs", "a cat", "two dogs", " two dogs ", "a cat"], done.append)
    assert rows == [2]
    assert sum(done) == 5
    for other in (2, 3):
        np.testing.assert_array_equal(encoded.vectors[0], encoded.vectors[other])


def test_threads_change_no_vector_beyond_rounding(minilm: Path, coco_slice: list[str]) -> None:
    one, again, three = (encoder(minilm, threads=n).encode(coco_slice).vectors for n in (1, 1, 3))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_allclose(one, three, atol=1e-5)


def test_torch_replaces_an_openvino_that_is_missing_or_wrong(make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = forward.openvino_forward

    def wrong(*arguments: Any) -> Any:
        return lambda *inputs: -right(*arguments)(*inputs)

    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'openvino'")

    for instead, reason in ((wrong, "an output is off by"), (missing, "No module named 'openvino'")):
        monkeypatch.setattr(forward, "openvino_forward", instead)
        for dtype, tolerance in (("float32", 1e-6), ("bfloat16", 1e-3)):
            subject = encoder(make_model(), dtype)  # type: ignore[arg-type]
            assert subject.backend == "sentence-transformers"
            assert reason in subject.left_out
            assert largest_cosine_distance(subject.encode(ODD).vectors, expected_vectors(make_model(), ODD)) < tolerance
    with pytest.raises(UsageError, match="cannot run in int8"):
        encoder(make_model(), "int8")  # type: ignore[arg-type]


def test_no_process_opens_a_connection(minilm: Path) -> None:
    """Convert, quantise and encode in a process whose sockets raise, with the telemetry of OpenVINO installed."""
    script = f"""
import importlib.util, socket, sys

assert importlib.util.find_spec("openvino_telemetry")

def refuse(*_, **__):
    print("opened a socket")
    raise OSError("no network")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from pathlib import Path
from relabel.core.runtime import Runtime
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.sbert.quantize import quantize_model
encoder = SentenceEncoder(Path({str(minilm)!r}), None, None, "float32", Runtime(device="cpu", threads=1))
assert encoder.backend == "openvino"
texts = ["two dogs", "a cat on a mat"]
model = quantize_model(encoder.convert(), encoder.tokens(texts)[0])
int8 = SentenceEncoder(Path({str(minilm)!r}), None, None, "int8", Runtime(device="cpu", threads=1), model)
assert int8.encode(texts).vectors.shape == (2, 384)
assert sys.modules["openvino_telemetry"] is None
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, "opened a socket" in ended.stdout) == (0, False), ended.stderr


def test_nothing_is_printed(minilm: Path, capfd: pytest.CaptureFixture[str]) -> None:
    encoder(minilm).encode(ODD)
    assert capfd.readouterr() == ("", "")


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-3)])
def test_gpu_equals_cpu(minilm: Path, dtype: ComputeType, tolerance: float) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    subject = SentenceEncoder(minilm, None, None, dtype, Runtime(device="cuda"))
    assert (subject.device, subject.backend) == ("cuda", "sentence-transformers")
    assert largest_cosine_distance(subject.encode(ODD).vectors, expected_vectors(minilm, ODD)) < tolerance


def test_weights_stored_in_half_precision_compute_in_float32(make_model: Any, tmp_path: Path) -> None:
    SentenceTransformer(str(make_model()), device="cpu").bfloat16().save(str(tmp_path / "half"))
    model = load_model(tmp_path / "half", "cpu", None)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
