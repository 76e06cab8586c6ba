"""Contract of `correlate --stsb`: a source scores every pair, in both orders unless it is symmetric, and the scores are
correlated with human ones; the temporary encoding is removed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from relabel.core.errors import MissingError
from relabel.core.runtime import Runtime
from relabel.judge.stsb import judge_stsb
from relabel.sources.cbow import Cbow, CbowParams
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.same_image import SameImage, SameImageParams

ROWS = [
    ("A dog runs", "a dog is running", 4.2),
    ("A dog runs", "a cat sleeps", 0.4),
    ('He said, "go"', "he said go", 3.8),
    ("Two cats sleep", "two cats sleep on a sofa", 3.0),
    ("qwx", "zzz qwx", 2.5),
    ("on a sofa", "a dog runs on a sofa", 1.75),
]
WORDS = ["a", "dog", "runs", "two", "cats", "sleep", "on", "sofa", "he", "said", "go", "cat"]


def write(folder: Path, rows: list[tuple[str, str, float]] = ROWS) -> Path:
    for split in ("dev", "test"):
        lines = (",".join(f'"{t.replace(chr(34), 2 * chr(34))}"' for t in r[:2]) + f",{r[2]}\r\n" for r in rows)
        (folder / f"stsb-en-{split}.csv").write_text("".join(lines), newline="")
    return folder


def test_a_symmetric_source_against_an_explicit_loop(tmp_path: Path) -> None:
    vectors = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 5)).round(3), strict=True))
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in vectors.items()))
    source = Cbow(CbowParams(vectors=str(file), tokenizer="lower_split"))
    scores = judge_stsb(source, write(tmp_path), tmp_path / "work", Runtime(data=tmp_path))

    def mean(text: str) -> np.ndarray:
        return np.sum([vectors.get(w, np.zeros(5)) for w in text.lower().split()], axis=0)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        lengths = np.linalg.norm(a) * np.linalg.norm(b)
        return float(a @ b / lengths) if lengths else 0.0

    label = [cosine(mean(a), mean(b)) for a, b, _ in ROWS]
    human = [r[2] for r in ROWS]
    assert [(s.split, s.n) for s in scores] == [("dev", 6), ("test", 6)]
    assert scores[0].pearson == pytest.approx(pearsonr(label, human)[0], abs=1e-4)
    assert scores[0].spearman == pytest.approx(spearmanr(label, human)[0], abs=1e-9)
    assert not list((tmp_path / "work").iterdir())


def test_both_orders_of_a_source_that_has_two(tmp_path: Path) -> None:
    source = Cider(CiderParams(tokenizer="lower_split"))
    swapped = [(b, a, s) for a, b, s in ROWS]
    (tmp_path / "swapped").mkdir()
    one = judge_stsb(source, write(tmp_path), tmp_path / "work", Runtime(), splits=["test"])[0]
    two = judge_stsb(source, write(tmp_path / "swapped", swapped), tmp_path / "work", Runtime(), splits=["test"])[0]
    assert one.pearson is not None
    assert one.pearson == pytest.approx(two.pearson, abs=1e-9)
    assert one.spearman == pytest.approx(two.spearman, abs=1e-9)


def test_a_constant_source_has_no_correlation(tmp_path: Path) -> None:
    score = judge_stsb(SameImage(SameImageParams()), write(tmp_path), tmp_path / "work", Runtime(), ["dev"])[0]
    assert (score.n, score.pearson, score.spearman) == (6, None, None)


def test_files_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    with pytest.raises(MissingError, match="relabel fetch stsb"):
        judge_stsb(SameImage(SameImageParams()), tmp_path, tmp_path / "work", Runtime())


def test_real_stsb_with_real_glove(mirror: Path, tmp_path: Path) -> None:
    """Figures of an explicit loop over the same files: GloVe 6B 100-d, lower_split, plain mean."""
    vectors = mirror / "vectors" / "glove.6B.100d.captions-vocabulary.txt.gz"
    for path in (vectors, mirror / "stsb" / "stsb-en-test.csv"):
        if not path.exists():
            pytest.skip(f"the mirror has no {path.relative_to(mirror)}")
    source = Cbow(CbowParams(vectors=str(vectors), tokenizer="lower_split", index=None))
    dev, test = judge_stsb(source, tmp_path / "data", tmp_path / "work", Runtime())
    assert (dev.n, test.n) == (1500, 1379)
    assert dev.pearson == pytest.approx(0.3857, abs=0.001)
    assert test.pearson == pytest.approx(0.3075, abs=0.001)


def test_a_source_that_another_label_gates(tmp_path: Path) -> None:
    """The parts are encoded over the same sentences and opened with it; here both are one gate's cosine, or nothing."""
    from relabel.sources.cosine import VectorRelevance

    vectors = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 5)).round(3), strict=True))
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in vectors.items()))
    gate = Cbow(CbowParams(vectors=str(file), tokenizer="lower_split", index=None))
    seen = []

    class Gated(SameImage):
        def input_labels(self) -> tuple[str, ...]:
            return ("near",)

        def open(self, encoding):  # type: ignore[no-untyped-def]
            seen.append(encoding.inputs["near"])
            return encoding.inputs["near"]

    found = judge_stsb(Gated(SameImageParams()), write(tmp_path), tmp_path / "work", Runtime(), ["dev"], {"near": gate})
    alone = judge_stsb(gate, tmp_path, tmp_path / "work", Runtime(), ["dev"])
    assert isinstance(seen[0], VectorRelevance)
    assert found == alone
