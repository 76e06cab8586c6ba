"""Contract: a cross-encoder of images and captions scores the file of the first reference's image, behind its gate, as
`CrossEncoder.predict` does pair by pair. Neighbours equal a sort by `pairs`. Other bytes of an image are another label.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from tests.relabel.sources.encodings import find

from relabel import stages
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.sources.finder import Search
from relabel.stages import Session, open_corpus

SIZE, IMAGES = {"hidden_size": 32, "initializer_range": 0.3}, 6


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> Path:
    """Make a language model of two layers that sees images and answers yes or no, with random weights."""
    import torch
    import transformers as hf

    marks = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer: Any = hf.AutoTokenizer.from_pretrained(minilm)
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    start, end, image, video = tokenizer.convert_tokens_to_ids(marks)
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}
    config = hf.Qwen2VLConfig(
        text_config={**SIZE, **heads, "vocab_size": len(tokenizer), "rope_scaling": {"mrope_section": [1, 1, 2]}},
        vision_config={**SIZE, "depth": 1, "embed_dim": 32, "num_heads": 4, "mlp_ratio": 2},
        **{"image_token_id": image, "video_token_id": video},
        **{"vision_start_token_id": start, "vision_end_token_id": end},
    )
    text = "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    text += "".join(marks[i] for i in (0, 2, 1)) + "{% else %}{{ c['text'] }} {% endif %}{% endfor %}{% endfor %}"
    pixels = hf.Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56)
    parts: dict[str, Any] = {"image_processor": pixels, "video_processor": hf.Qwen2VLVideoProcessor()}
    processor: Any = hf.Qwen2VLProcessor(tokenizer=tokenizer, chat_template=text, **parts)  # type: ignore[no-untyped-call]
    folder = tmp_path_factory.mktemp("judge")
    torch.manual_seed(0)
    hf.Qwen2VLForConditionalGeneration(config).save_pretrained(folder / "parts")
    processor.save_pretrained(folder / "parts")
    modules = [
        Transformer(str(folder / "parts"), transformer_task="any-to-any"),
        LogitScore(*tokenizer.convert_tokens_to_ids(["yes", "no"])),
    ]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder / "judge"))
    return folder / "judge"


@pytest.fixture
def session(tmp_path: Path, judge: Path, gated: Callable[..., Session]) -> Session:
    """Return a project of six images, encoded with label `fine` behind `near`."""
    draw = np.random.default_rng(0)
    for i in range(IMAGES):
        Image.fromarray(draw.integers(0, 255, (40, 50, 3), np.uint8)).save(tmp_path / f"{i:03}.png")
    return gated(0.7, IMAGES, model=str(judge), images=str(tmp_path / "{id:0>3}.png"))


def test_pairs_and_neighbours_of_images(session: Session, judge: Path, tmp_path: Path) -> None:
    corpus, label = open_corpus(session), stages.open_label(session, "fine", "all")
    model, near = CrossEncoder(str(judge), device="cpu"), stages.open_label(session, "near", "all")
    images, every = corpus.references(range(IMAGES)), np.arange(len(corpus), dtype=np.int32)
    expected, gate = np.zeros((IMAGES, len(every))), near.block(images, every, "max")
    for i, j in np.argwhere(gate >= 0.7):
        pair = ({"image": str(tmp_path / f"{i:03}.png")}, corpus.texts[j])
        expected[i, j] = model.predict([pair], show_progress_bar=False)[0]
    assert 0.2 < np.mean(gate >= 0.7) < 0.9
    assert np.ptp(expected[gate >= 0.7], axis=None) > 0.05
    np.testing.assert_allclose(label.block(images, every), expected, atol=1e-5)
    # A caption stands for its image.
    single = (corpus.indptr[1:] - 1).astype(np.int32)
    np.testing.assert_allclose(label.block(References.single(single), every), expected, atol=1e-5)
    search = Search(images, np.full(IMAGES, -1, np.int32), every, 5)
    rows, scores = find(label.finder(search, "max", session.runtime), tmp_path / "work")
    order = np.lexsort((np.broadcast_to(every, expected.shape), -expected.round(6)), axis=1)[:, :5]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, order, 1), atol=1e-5)


def test_the_bytes_of_images_decide(session: Session, tmp_path: Path) -> None:
    (tmp_path / "002.png").write_bytes((tmp_path / "003.png").read_bytes())
    with pytest.raises(CheckError, match="does not match the current parameters and inputs"):
        stages.open_label(session, "fine", "all")
    stages.build_encoding(session, "fine", "all")
    (tmp_path / "003.png").unlink()
    label = stages.open_label(session, "fine", "all")  # an absent input is not compared
    corpus = open_corpus(session)
    with pytest.raises(MissingError, match="no such image") as error:
        label.block(corpus.references(range(IMAGES)), np.arange(len(corpus), dtype=np.int32))
    assert str(error.value.where).endswith("003.png")


def test_a_language_model_scores_two_texts(judge: Path) -> None:
    scorer = PairScorer(judge, BertStsParams(), Runtime(device="cpu"))
    pairs = [("a red dog", "a dog runs"), ("a cat", "a red bus")]
    expected = CrossEncoder(str(judge), device="cpu").predict(pairs, show_progress_bar=False)
    np.testing.assert_allclose(scorer.score(*zip(*pairs, strict=True)), expected, atol=1e-5)
    assert scorer.backend == "sentence-transformers"
    assert scorer.read(["a dog", "🐕 a dog"]).unknown.tolist() == [0, 1]


def test_a_model_of_texts_reads_no_images(make_cross: Any) -> None:
    with pytest.raises(UsageError, match="does not support images"):
        PairScorer(make_cross(), BertStsParams(images="{id}.jpg"), Runtime(device="cpu"))
