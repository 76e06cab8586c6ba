"""Contract: a loader of SCAN's files reads the export `scan`, and the captions of every batch are those of the lookup.
A folder without a known loader, and files that do not belong to the lookup, are refused.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import WORDS
from tests.examples.documents import ROOT
from tests.relabel.export.formats import with_captions

from relabel import stages
from relabel.corpus.build import Caption
from relabel.stages import Session

pytestmark = pytest.mark.slow
DATASET = """
import os, nltk, numpy as np
class PrecompDataset:
    def __init__(self, data_path, data_split, vocab):
        self.captions = [line.strip() for line in open(f"{data_path}/{data_split}_caps.txt")]
        self.images, self.vocab = np.load(f"{data_path}/{data_split}_ims.npy"), vocab
    def __len__(self):
        return len(self.captions)
    def __getitem__(self, index):
        words = nltk.tokenize.word_tokenize(self.captions[index].lower())
        return self.images[index // 5], [self.vocab(w) for w in ["<start>", *words, "<end>"]], index
def collate_fn(data):
    import torch
    images, targets, ids = zip(*data)
    return None, torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, targets)), True), list(map(len, targets)), ids
"""
"""A loader of the same form, written for this test."""


@pytest.fixture(scope="module")
def exported(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the export `scan` and the lookup of 20 images with five captions each."""
    words = WORDS.split()
    texts = {f"{i}-{j}": f"{words[i % 8]} {words[(i + j) % 8]}" for i in range(20) for j in range(5)}
    captions = [Caption(name, name.partition("-")[0], "train", text) for name, text in texts.items()]
    session = with_captions(small_project, tmp_path_factory.mktemp("scan"), captions)
    stages.encoding(session, "cbow", "train").run()
    jobs = [stages.format_export(session, "scan", "cbow", "train"), stages.lookup_export(session, "cbow", "train")]
    for job in jobs:
        job.run()
    return [job.out for job in jobs]


def run(exported: list[Path], clone: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "examples" / "scan_loaders.py", *exported, "--peer", clone]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def test_batches_of_a_loader_agree_with_the_lookup(exported: list[Path], tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(DATASET)
    done = run(exported, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path.name}: 7 batches agree with the lookup\n"


def test_other_captions_and_other_clones_are_refused(exported: list[Path], tmp_path: Path) -> None:
    assert "none of data.py" in run(exported, tmp_path).stderr
    (tmp_path / "data.py").write_text(DATASET.replace("line.strip()", "line.strip() + ' x'"))
    done = run(exported, tmp_path)
    assert done.returncode == 1
    assert "batch 0 differs from the lookup" in done.stderr
