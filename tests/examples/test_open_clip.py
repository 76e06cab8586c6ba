"""Contract: open_clip's own trainer learns from the labels of a side-car, with csv and with webdataset. The labels of a
batch are those of its texts."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples.conftest import Example
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.stages import Session, open_corpus
from relabel_train.lookup import open_lookup
from relabel_train.webdataset import join

pytestmark = pytest.mark.slow
FIXED = "--model tiny --batch-size 32 --workers 1 --lr 1e-2 --warmup 1 --epochs 3"
MODEL = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


@pytest.fixture(params=["webdataset", "csv"])
def run(request: pytest.FixtureRequest, small_project: Session, tmp_path: Path) -> tuple[str, list[str], Session]:
    """Folder of the side-car, arguments of open_clip, and the project."""
    # open_clip imports torchvision, which would delay the collection of all tests.
    open_clip, wds = pytest.importorskip("open_clip"), pytest.importorskip("webdataset")
    from PIL import Image

    (tmp_path / "tiny.json").write_text(json.dumps(MODEL))
    open_clip.add_model_config(tmp_path / "tiny.json")
    session = in_folder(small_project, tmp_path / "labels", "neighbours", "exports/all/lookup")
    corpus, rng = open_corpus(session), np.random.default_rng(0)
    colours = rng.integers(0, 255, (60, 3), np.uint8)
    images = tmp_path / "images"
    images.mkdir()
    keys = [name.removeprefix("coco:") for name in corpus.caption_ids]
    pictures = [Image.fromarray(np.tile(colours[image], (40, 40, 1))) for image in corpus.image]
    if request.param == "webdataset":
        with wds.ShardWriter(str(images / "%05d.tar"), maxcount=100, verbose=0) as writer:
            for key, text, picture in zip(keys, corpus.texts, pictures, strict=True):
                buffer = io.BytesIO()
                picture.save(buffer, "png")
                writer.write({"__key__": key, "png": buffer.getvalue(), "txt": text})
        last = len(list(images.glob("*.tar"))) - 1
        shards = f"{images}/{{00000..{last:05d}}}.tar"
        data = ["--dataset-type", "webdataset", "--train-data", shards, "--train-num-samples", str(len(corpus))]
        settings: dict[str, Any] = {"shards": shards, "keys": "caption"}
    else:
        lines = ["filepath\ttitle\tkey"]
        for row, (key, text, picture) in enumerate(zip(keys, corpus.texts, pictures, strict=True)):
            picture.save(images / f"{row}.png")
            lines.append(f"{images}/{row}.png\t{text}\t{key}")
        (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        data = ["--dataset-type", "csv", "--train-data", str(tmp_path / "train.tsv")]
        settings = {"captions_per_shard": 100}
    job = stages.wds_export(with_params(session, "wds", **settings), "cbow", "all")
    job.run()
    logs = ["--logs", str(tmp_path / "logs"), "--name", "run", "--log-every-n-steps", "1", "--device", "cpu"]
    return str(job.out), [*data, *FIXED.split(), *logs, "--save-frequency", "0"], session


def test_the_trainer_learns(example: Example, run: tuple[str, list[str], Session], tmp_path: Path) -> None:
    sidecar, arguments, _ = run
    example("open_clip/train").main(sidecar, arguments)
    log = (tmp_path / "logs" / "run" / "out.log").read_text()
    losses = [float(number) for number in re.findall(r"Soft_target_loss: ([\d.]+)", log)]
    assert len(losses) >= 12
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:2])


def test_labels_belong_to_the_texts_of_the_batch(example: Example, run: tuple[str, list[str], Session]) -> None:
    import open_clip
    from open_clip_train.params import parse_args

    sidecar, arguments, session = run
    args = parse_args(arguments)
    args.distributed, args.rank, args.world_size = False, 0, 1
    _, preprocess, _ = open_clip.create_model_and_transforms("tiny")
    tokenizer, corpus = open_clip.get_tokenizer("tiny"), open_corpus(session)
    train = example("open_clip/train")
    step, criterion = join(sidecar), train.SoftTargetClipLoss(0.1)
    data = train.labelled_data(step, criterion, args, (preprocess, preprocess), tokenizer=tokenizer)
    lookup = open_lookup(session.folder("exports", "all", "lookup", "cbow"))
    # Equal texts have equal vectors, so any of their rows stands for them.
    row_of = {tuple(tokens): row for row, tokens in enumerate(tokenizer(corpus.texts).tolist())}
    count = 0
    for images, texts in data["train"].dataloader:
        assert len(images) == len(texts) == 32
        rows = [row_of[tuple(tokens)] for tokens in texts.tolist()]
        assert criterion.labels is not None
        np.testing.assert_allclose(criterion.labels[0], lookup.block(rows, pooling="first"), atol=1e-3)
        assert criterion.labels[1].diagonal().all()
        count += 1
    assert count >= len(corpus) // 32
