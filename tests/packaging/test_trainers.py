"""Contract: the trainers' own data classes read the exports that are made for them. A batch that their collators make
holds captions of one split, the label's exact scores times the scale, and a positive that is above its negatives.

The trainers come with what they import into a folder of their own: FlagEmbedding 1.4.2 does not import beside
transformers 5, and the release of tevatron on PyPI reads no scores. `RELABEL_TEVATRON` names what pip installs in place
of the archive of its repository, such as a clone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.packaging.environments import attempt, need_registry, run
from tests.relabel.export.formats import exported

from relabel.stages import Session, open_corpus
from relabel_train.lookup import open_lookup

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(900)]
COMMIT = "https://github.com/texttron/tevatron/archive/dd063104c81a76d6a77c845f667b46b9e5abd625.zip"
IMPORTED = ("transformers==4.57.*", "tokenizers==0.22.1", "huggingface-hub==0.36.*", "datasets==4.0.*", "peft==0.17.*")
GROUP, SCALE, MARGIN = 4, 20.0, 0.05
START = f"""import json, sys
from types import SimpleNamespace
from transformers import BertTokenizer

file, vocabulary = sys.argv[1:]
tokenizer = BertTokenizer(vocabulary, do_lower_case=False)
trainer = SimpleNamespace(state=SimpleNamespace(epoch=1), args=SimpleNamespace(seed=3))
group = {GROUP}
"""
END = """
texts = [tokenizer.batch_decode(side["input_ids"], skip_special_tokens=True) for side in (queries, passages)]
print(json.dumps([*texts, scores]))
"""


class Trainer(NamedTuple):
    """What pip installs, which export it reads, and the program that sets `queries`, `passages` and `scores`."""

    package: str
    kind: str
    program: str


TRAINERS = {
    "FlagEmbedding": Trainer(
        "FlagEmbedding==1.4.2",
        "flagembedding",
        """
from FlagEmbedding.abc.finetune.embedder import (
    AbsEmbedderCollator, AbsEmbedderDataArguments, AbsEmbedderTrainDataset,
)
arguments = AbsEmbedderDataArguments([file], "cache", train_group_size=group, knowledge_distillation=True)
dataset = AbsEmbedderTrainDataset(arguments, tokenizer)
batch = AbsEmbedderCollator(tokenizer)([dataset[i] for i in range(len(dataset))])
queries, passages, scores = (batch[name] for name in ("queries", "passages", "teacher_scores"))
""",
    ),
    "tevatron": Trainer(
        os.environ.get("RELABEL_TEVATRON", COMMIT),
        "tevatron",
        """
import torch
from tevatron.retriever.arguments import DataArguments
from tevatron.retriever.collator import DistilTrainCollator
from tevatron.retriever.dataset import DistilTrainDataset
arguments = DataArguments(dataset_path=file, dataset_cache_dir="cache", train_group_size=group)
dataset = DistilTrainDataset(arguments, trainer)
samples = [dataset[i] for i in range(len(dataset))]
queries, passages, scores = DistilTrainCollator(tokenizer, arguments, torch.float32)(samples)
scores = scores.flatten().tolist()
""",
    ),
    "tevatron of PyPI": Trainer(
        "tevatron==0.1.0",
        "tevatron",
        """
import datasets
from tevatron.arguments import DataArguments
from tevatron.data import QPCollator, TrainDataset
from tevatron.datasets import TrainPreProcessor
lines = datasets.load_dataset("json", data_files=file, split="train", cache_dir="cache")
arguments = DataArguments(train_n_passages=group)
dataset = TrainDataset(arguments, lines.map(TrainPreProcessor(tokenizer)), tokenizer, trainer)
queries, passages = QPCollator(tokenizer)([dataset[i] for i in range(len(dataset))])
scores = None
""",
    ),
}


def install(folder: Path, *packages: str) -> None:
    """Install packages without what they require into a folder, which then hides those of this environment."""
    options = ("--quiet", "--no-deps", "--target", str(folder))
    result = attempt(sys.executable, "-m", "pip", "install", *options, *packages, cwd=folder.parent)
    if result.returncode and COMMIT in packages:
        pytest.skip("the archive of tevatron's repository cannot be reached; RELABEL_TEVATRON may name a clone")
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the packages that trainers import in versions of their time."""
    need_registry("peft")
    folder = tmp_path_factory.mktemp("trainers") / "imported"
    install(folder, *IMPORTED)
    return folder


@pytest.mark.parametrize("name", TRAINERS)
def test_batches_have_captions_of_the_split_and_the_labels_scores(
    name: str, imported: Path, small_project: Session, tmp_path: Path
) -> None:
    trainer, own = TRAINERS[name], tmp_path / "own"
    install(own, trainer.package)
    corpus, lookup = open_corpus(small_project), open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    folder, _ = exported(small_project, trainer.kind, count=60, scale=SCALE, margin=MARGIN)
    (file,) = (folder / "data").glob("train-*")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({w for text in corpus.texts for w in text.split()})]
    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    command = ("env", f"PYTHONPATH={own}{os.pathsep}{imported}", sys.executable, "-c", START + trainer.program + END)
    out = run(*command, file, tmp_path / "words.txt", cwd=tmp_path)
    queries, passages, scores = json.loads(out.splitlines()[-1])
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert queries == [record["query"] for record in records]
    assert len(passages) == GROUP * len(queries)
    # Captions of one text have one vector, so that any of them has the score.
    row_of = {corpus.texts[row]: row for row in corpus.splits["train"]}
    anchors = [row_of[query] for query in queries]
    rows = np.array([row_of[passage] for passage in passages]).reshape(-1, GROUP)
    expected = np.array([lookup.block([a], r, "first")[0] for a, r in zip(anchors, rows, strict=True)])
    assert (expected[:, 0] > expected[:, 1:].max(axis=1) + MARGIN).all()
    if scores is not None:
        np.testing.assert_allclose(np.reshape(scores, expected.shape), SCALE * expected, rtol=0, atol=1e-5)
