"""Loaders of SGRAF, NAAF and CHAN on exported files: ``python examples/scan_loaders.py SCAN LOOKUP --peer CLONE ...``.

SCAN is the folder of `relabel export scan`, LOOKUP that of `relabel export lookup`, both of the train split. Each CLONE
is a checkout of Paranioar/SGRAF, CrossmodalGroup/NAAF or ppanzx/CHAN. The dataset and the collate function of the clone
read the captions, with random image features, and the captions of every batch are compared with those of the lookup.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from relabel_train.lookup import open_lookup

LOADERS = ("data.py", "lib/datasets/image_caption_bigru.py")
"""Files of the clones that define the dataset."""
PYTHON_3 = {
    "index/self.im_div": "index//self.im_div",
    "str(caption).lower().decode('utf-8')": "caption.decode('utf-8').lower()",
}
"""Edits to SGRAF, which is written for Python 2."""


class Vocabulary(dict[str, int]):
    """Numbers of words, given when a word is first seen."""

    def __call__(self, word: str) -> int:
        """Return the number of a word."""
        return self.setdefault(word, len(self))


def load_module(clone: Path) -> Any:
    """Execute the module of a clone that defines the dataset, with stand-ins for packages of raw images and texts."""
    path = next((clone / name for name in LOADERS if (clone / name).exists()), None)
    if path is None:
        raise SystemExit(f"{clone}: none of {', '.join(LOADERS)} is there")
    for name in ("cv2", "imageio", "nltk", "torchvision", "torchvision.transforms", "PIL"):
        stand_in: Any = ModuleType(name)
        stand_in.imread = stand_in.Image = stand_in.transforms = None
        stand_in.tokenize = Namespace(word_tokenize=str.split)
        sys.modules[name] = stand_in
    text = path.read_text(encoding="utf-8")
    for old, new in PYTHON_3.items():
        text = text.replace(old, new)
    module = ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def check(scan: Path, lookup_folder: Path, clone: Path, batch: int = 16) -> int:
    """Read all captions with the loader of a clone and compare them with a lookup; return the number of batches.

    Parameters
    ----------
    scan, lookup_folder, clone : Path
    batch : int

    Raises
    ------
    SystemExit
        If the clone has no known loader, or a batch differs.
    """
    module, lookup, vocabulary = load_module(clone), open_lookup(lookup_folder), Vocabulary()
    captions = (scan / "train_caps.txt").read_text(encoding="utf-8").splitlines()
    ids = (scan / "train_caption_ids.txt").read_text(encoding="utf-8").splitlines()
    images = len((scan / "train_ids.txt").read_text(encoding="utf-8").splitlines())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "precomp")
        folder.mkdir()
        shutil.copyfile(scan / "train_caps.txt", folder / "train_caps.txt")
        np.save(folder / "train_ims.npy", np.random.default_rng(0).normal(size=(images, 4, 8)).astype(np.float32))
        if hasattr(module, "PrecompDataset"):
            dataset = module.PrecompDataset(str(folder), "train", vocabulary)
        else:
            options = Namespace(obj_drop_rate=0.2)
            dataset = module.PrecompRegionDataset(temporary, "", "train", vocabulary, options, train=False)
    batches = 0
    for *_, targets, lengths, index in torch.utils.data.DataLoader(
        dataset, batch, shuffle=True, collate_fn=module.collate_fn
    ):
        words = list(vocabulary)
        read = [[words[t] for t in row[1 : n - 1]] for row, n in zip(targets.tolist(), lengths, strict=True)]
        rows = lookup.at_lines(index, 5)
        if read != [captions[i].lower().split() for i in index] or lookup.caption_ids(rows) != [ids[i] for i in index]:
            raise SystemExit(f"{clone}: batch {batches} differs from the lookup")
        if lookup.block(rows).shape != (len(index), len(index)):
            raise SystemExit(f"{clone}: batch {batches} has a block of another shape")
        batches += 1
    return batches


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scan", type=Path, metavar="SCAN")
    parser.add_argument("lookup", type=Path, metavar="LOOKUP")
    parser.add_argument("--peer", type=Path, nargs="+", required=True, metavar="CLONE")
    paths = parser.parse_args()
    for peer in paths.peer:
        sys.stdout.write(f"{peer.name}: {check(paths.scan, paths.lookup, peer)} batches agree with the lookup\n")
