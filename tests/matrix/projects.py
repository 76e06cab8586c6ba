"""Projects on real captions in which the matrix runs the command, with one label per source and its inputs."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

WIDTH = 12
SOURCES: dict[str, dict[str, Any]] = {
    "same_image": {"source": "same_image"},
    "sbert": {"source": "sbert", "model": "sentence-transformers/all-MiniLM-L6-v2"},
    "cbow": {"source": "cbow", "vectors": "words.txt", "tokenizer": "lower_split"},
    "vectors": {"source": "precomputed", "captions": "captions.npy"},
    "clip": {"source": "precomputed", "captions": "captions.npy", "images": "images.npy", "pooling": "set"},
    "images": {"source": "precomputed", "images": "images.npy"},
    "cider": {"source": "cider"},
    "cider_lower_split": {"source": "cider", "tokenizer": "lower_split"},
    "spice": {"source": "spice"},
    "meteor": {"source": "meteor", "processes": 1},
    "bert_sts": {"source": "bert_sts", "model": "models/pairs", "gate": "cbow", "threshold": 0.6},
    "wmd": {"source": "wmd", "vectors": "words.txt", "tokenizer": "lower_split"},
    "fuse": {"source": "fuse", "model": "models/fuse"},
}
"""Label to parameters: every source, and `vectors` in each of its three forms."""


@dataclass(frozen=True)
class Line:
    """A caption: ids without a namespace, a split, a text."""

    caption_id: str
    image_id: str
    split: str
    text: str


@dataclass(frozen=True)
class Result:
    """The result of one command."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Return the lines of stderr that name an error."""
        return [line for line in self.err.splitlines() if line.startswith("error:")]


@dataclass(frozen=True)
class Folder:
    """Folder of a user with parameters, captions and models; the working directory of each command.

    Attributes
    ----------
    path : Path
    patch : pytest.MonkeyPatch
    """

    path: Path
    patch: pytest.MonkeyPatch

    def relabel(self, *arguments: str) -> Result:
        """Run the command in this process; an exception that would be a traceback is raised."""
        from relabel_cli.exceptions import report
        from relabel_cli.root import app

        self.patch.chdir(self.path)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                # `doctor` shows no progress.
                quiet = [] if arguments[0] == "doctor" else ["--quiet"]
                code = app([*arguments, *quiet], standalone_mode=False)
            except Exception as error:
                code = report(error)
                if code == 1:
                    raise
        return Result(code or 0, out.getvalue(), err.getvalue())

    def done(self, *arguments: str) -> Result:
        """Run a command that must succeed."""
        result = self.relabel(*arguments)
        assert result.code == 0, f"relabel {' '.join(arguments)}: {result.err}"
        return result

    def prepare(self, labels: Sequence[str], split: str = "val") -> None:
        """Ingest the captions and encode labels; fit the fuse once its parts are encoded."""
        self.done("ingest")
        for label in labels:
            if label == "fuse" and not (self.path / "models/fuse").exists():
                write_fuse(self.path / "models/fuse", self.path / "labels/coco/encodings" / split)
            self.done("encode", "--label", label, "--split", split)

    def write(self, lines: list[Line]) -> None:
        """Write the captions as JSONL."""
        body = "".join(json.dumps(vars(line)) + "\n" for line in lines)
        (self.path / "captions.jsonl").write_text(body, encoding="utf-8")

    def write_params(self, sources: Mapping[str, Any], **sections: Any) -> None:
        """Write params.yaml."""
        (self.path / "params.yaml").write_text(yaml.safe_dump({"sources": dict(sources), **sections}), encoding="utf-8")


def real_lines(jar: Path, images: int, train: int, test: int = 0) -> list[Line]:
    """Read captions of a few of COCO's images: judged ones of val and test, and others as split train.

    Image 391895 is among those of test.
    """
    from relabel.datasets.cxc import image_ids

    with zipfile.ZipFile(jar) as packed:
        body = json.loads(packed.read("coco/annotations/captions_val2014.json"))
    by_image: dict[int, list[tuple[int, str]]] = {}
    for one in body["annotations"]:
        by_image.setdefault(one["image_id"], []).append((one["id"], one["caption"]))
    judged = set(image_ids("val").tolist()) | set(image_ids("test").tolist())
    chosen = [(m, "val") for m in image_ids("val").tolist()[:images]]
    chosen += [(m, "test") for m in [391895, *image_ids("test").tolist()][:test]]
    chosen += [(m, "train") for m in sorted(set(by_image) - judged)[:train]]
    return [
        Line(str(number), str(image), split, text)
        for image, split in chosen
        for number, text in sorted(by_image[image])
    ]


def write_words(path: Path, lines: list[Line]) -> None:
    """Write a vector for nine of ten words of the captions, in word2vec's text format."""
    words = sorted({word for line in lines for word in line.text.lower().replace(".", " ").replace(",", " ").split()})
    vectors = np.random.default_rng(3).normal(size=(len(words), WIDTH))
    rows = [
        f"{w} {' '.join(f'{x:.4f}' for x in v)}" for i, (w, v) in enumerate(zip(words, vectors, strict=True)) if i % 10
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_vectors(path: Path, ids: list[str], seed: int) -> None:
    """Write vectors and a file of their ids; an id has the same vector in every file of one seed."""
    vectors = [np.random.default_rng([seed, int(i)]).normal(size=WIDTH) for i in ids]
    np.save(path, np.asarray(vectors, np.float32), allow_pickle=False)
    path.with_suffix(".ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")


class WordParser:
    """Stand-in for SPICE's parser, without Java: every word is an object, and adjacent words are a relation."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def version(self) -> str:
        """Return a version that no parser has."""
        return "words"

    def parse(self, texts: list[str], advance: Callable[[int], None] = lambda _: None) -> list[Any]:
        """Return tuples of each text."""
        advance(len(texts))
        tuples = []
        for text in texts:
            words = text.lower().strip(" .").split()
            pairs = [[a, b, "near"] for a, b in itertools.pairwise(words)]
            tuples.append([[word] for word in words] + pairs)
        return tuples

    def close(self) -> None:
        """Do nothing."""


def write_cross_encoder(folder: Path, tokenizer: Path) -> None:
    """Write a cross-encoder of one layer and random weights, with MiniLM's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    pieces = AutoTokenizer.from_pretrained(tokenizer)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "initializer_range": 0.3, "num_labels": 1, "vocab_size": len(pieces)}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = AutoConfig.for_model("bert", max_position_embeddings=66, **sizes)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    pieces.save_pretrained(folder)


def write_fuse(folder: Path, encodings: Path) -> None:
    """Write a fuse of cbow and cider_lower_split with fixed curves, for their current encodings."""
    from tests.relabel.sources.fuse.fixtures import linear_head, write_fuse_model

    from relabel.sources.fuse.model import Feature, FuseModel, Head, Part, without_rows
    from relabel.store.manifest import read_manifest

    parts = {}
    for label in ("cbow", "cider_lower_split"):
        config = without_rows(read_manifest(encodings / label, "encoding").config)
        parts[label] = Part(str(config["source"]), False, config)
    cbow, mean = Feature("cbow", "max"), Feature("cbow", "mean")
    heads: dict[Any, Head] = {
        "set": linear_head({cbow: 0.3, mean: 0.2, Feature("cider_lower_split", "set"): 0.03}, 0.05),
        "single": linear_head({cbow: 0.5, Feature("cider_lower_split", "max"): 0.05}, 0.1),
    }
    write_fuse_model(folder, FuseModel(parts, heads))
