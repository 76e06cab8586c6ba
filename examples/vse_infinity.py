"""Graded labels in VSE-infinity's own training loop: ``python examples/vse_infinity.py SCAN LOOKUP --peer CLONE``.

SCAN is the folder of `relabel export scan`, LOOKUP that of `relabel export lookup`, both of the train split. CLONE is a
checkout of woodfrog/vse_infty. The edits below are made in a copy of the clone. The copy then trains on random image
features, with a small BERT of random weights, and the captions of every batch are compared with those of the lookup.
docs/vse-infinity.md explains the edits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from relabel_train.lookup import open_lookup

EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    "train.py": (
        (
            "images, img_lengths, captions, lengths, _ = train_data",
            "images, img_lengths, captions, lengths, index = train_data",
        ),
        ("image_lengths=img_lengths)", "image_lengths=img_lengths, index=index)"),
    ),
    "lib/vse.py": (
        (
            "from lib.loss import ContrastiveLoss\n",
            "from lib.loss import ContrastiveLoss\n"
            "from relabel_train.lookup import open_lookup\n"
            "from relabel_train.losses import SoftTargetLoss\n",
        ),
        (
            "        self.Eiters = 0\n",
            "        self.Eiters = 0\n"
            '        self.lookup = open_lookup("LOOKUP")\n'
            "        self.graded = SoftTargetLoss(tau=0.05, tau_target=0.05)\n",
        ),
        ("image_lengths=None, warmup_alpha=None):", "image_lengths=None, warmup_alpha=None, index=None):"),
        (
            "        loss = self.forward_loss(img_emb, cap_emb)\n",
            "        loss = self.forward_loss(img_emb, cap_emb)\n"
            "        rows = self.lookup.at_lines(index, 5)\n"
            "        relevance = torch.from_numpy(self.lookup.block(rows)).to(img_emb.device)\n"
            "        same_image = torch.from_numpy(self.lookup.same_image(rows)).to(img_emb.device)\n"
            "        loss = loss + self.graded(img_emb @ cap_emb.t(), relevance, same_image)\n",
        ),
    ),
}
"""File to the text that is replaced, and its replacement."""
REGIONS, WIDTH, TOKENS = 4, 16, 1000


def edited_copy(clone: Path, folder: Path, lookup: Path) -> None:
    """Copy the Python files of a clone and make the edits; each replaced text must occur once."""
    for path in ["train.py", "arguments.py", *(str(p.relative_to(clone)) for p in (clone / "lib").rglob("*.py"))]:
        text = (clone / path).read_text(encoding="utf-8")
        for old, new in EDITS.get(path, ()):
            if text.count(old) != 1:
                raise SystemExit(f"{clone / path}: {old.strip()!r} occurs {text.count(old)} times, not once")
            text = text.replace(old, new)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace('"LOOKUP"', repr(str(lookup))), encoding="utf-8")


class Tokenizer:
    """Tokenizer with the attributes that VSE-infinity's datasets read: words split at spaces, ids by hash."""

    def __init__(self) -> None:
        self.basic_tokenizer = self.wordpiece_tokenizer = self
        self.vocab = {f"word{i}": i for i in range(TOKENS)}

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text."""
        return text.split()

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        """Return a number per token."""
        return [1 + sum(token.encode()) % (TOKENS - 1) for token in tokens]


def stand_in_for_absent_modules() -> None:
    """Replace what needs a network, a GPU or packages of raw images by small stand-ins."""
    from transformers import BertConfig, BertModel

    for name in ("cv2", "imageio", "tensorboard_logger"):
        module: Any = ModuleType(name)
        module.imread, module.configure = None, lambda *_, **__: None
        module.log_value = module.configure
        sys.modules.setdefault(name, module)
    config = BertConfig(vocab_size=TOKENS, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    BertModel.from_pretrained = lambda *_, **__: BertModel(config)
    if not torch.cuda.is_available():
        # The clone moves the lengths of captions to a GPU in any case.
        torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]


def check(scan: Path, lookup_folder: Path, clone: Path, batch: int = 16, steps: int = 4) -> list[float]:
    """Train an edited copy of the clone for some steps; return the losses.

    Parameters
    ----------
    scan, lookup_folder, clone : Path
    batch, steps : int
    """
    lookup = open_lookup(lookup_folder)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        edited_copy(clone, folder, lookup_folder.resolve())
        ids = (scan / "train_caption_ids.txt").read_text(encoding="utf-8").splitlines()[: batch * steps]
        captions = (scan / "train_caps.txt").read_text(encoding="utf-8").splitlines()[: batch * steps]
        (folder / "data/precomp").mkdir(parents=True)
        shutil.copyfile(scan / "train_caps.txt", folder / "data/precomp/train_caps.txt")
        images = len((scan / "train_ids.txt").read_text().splitlines())
        features = np.random.default_rng(0).normal(size=(images, REGIONS, WIDTH)).astype(np.float32)
        np.save(folder / "data/precomp/train_ims.npy", features)
        stand_in_for_absent_modules()
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        import arguments
        import train
        from lib.datasets import image_caption
        from lib.vse import VSEModel

        options = ["--data_path", "data", "--img_dim", str(WIDTH), "--embed_size", "32", "--batch_size", str(batch)]
        opt = arguments.get_argument_parser().parse_args([*options, "--log_step", "1"])
        dataset = image_caption.PrecompRegionDataset("data", "precomp", "train", Tokenizer(), opt, train=True)
        first = torch.utils.data.Subset(dataset, range(len(captions)))
        loader = torch.utils.data.DataLoader(first, batch, shuffle=True, collate_fn=image_caption.collate_fn)
        for *_, index in loader:
            assert lookup.caption_ids(lookup.at_lines(index, 5)) == [ids[i] for i in index]
            assert [dataset.captions[i] for i in index] == [captions[i] for i in index]
        model = VSEModel(opt)
        losses: list[float] = []
        graded = model.graded.forward
        model.graded.forward = lambda *values: losses.append(graded(*values).item()) or graded(*values)
        train.train(opt, loader, model, 0, None)
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scan", type=Path, metavar="SCAN")
    parser.add_argument("lookup", type=Path, metavar="LOOKUP")
    parser.add_argument("--peer", type=Path, required=True, metavar="CLONE")
    paths = parser.parse_args()
    values = check(paths.scan.resolve(), paths.lookup.resolve(), paths.peer.resolve())
    shown = ", ".join(f"{value:.3f}" for value in values)
    sys.stdout.write(f"{len(values)} steps with graded labels; loss of the labels {shown}\n")
