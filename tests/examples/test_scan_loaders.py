"""Contract: a loader of SCAN's files reads the export `scan`, and the captions of every batch are those of the lookup.
A folder without a known loader, and files that do not belong to the lookup, are refused.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.documents import ROOT

from relabel import stages
from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.stages import Project

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
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the export `scan` and the lookup of 20 images with five captions each."""
    folder, words = tmp_path_factory.mktemp("scan"), [f"word{i}" for i in range(8)]
    rows = [f"c{i}-{j},{i},train,{words[i % 8]} {words[(i + j) % 8]}" for i in range(20) for j in range(5)]
    (folder / "captions.csv").write_text("\n".join(["caption_id,image_id,split,text", *rows]) + "\n")
    vectors = [f"{word} {i % 3} {i % 5} {1 + i % 2}" for i, word in enumerate(words)]
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n")
    settings = ["ingest.dataset=mine", f"ingest.path={folder / 'captions.csv'}"]
    settings += [f"sources={{cbow: {{source: cbow, vectors: {folder / 'vectors.txt'}, tokenizer: lower_split}}}}"]
    project = Project(load_config(None, settings), Runtime(threads=1), folder / "labels")
    stages.ingest(project).run()
    stages.encode(project, "cbow", "train").run()
    jobs = [stages.export(project, "scan", "cbow", "train"), stages.export_lookup(project, "cbow", "train")]
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
