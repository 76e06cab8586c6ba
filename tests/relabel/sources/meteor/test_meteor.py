"""Contract: METEOR equals pycocoevalcap's to 1e-12 for any captions and poolings, and sends each question once. A Java
process that dies, hangs or prints garbage ends in an error that names the pair.
"""

from __future__ import annotations

import gzip
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from pydantic import ValidationError

from relabel.core import worker_pool
from relabel.core.errors import MissingError, PartialError
from relabel.core.java import find_java
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.corpus.tokenizers import tokenize
from relabel.sources.base import OpenEncoding
from relabel.sources.meteor import Meteor, MeteorParams, MeteorRelevance
from relabel.sources.wordnet import find_meteor_jar
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, open_artefact
from relabel.store.tasks import make_all

ODD = [
    "A dog 😀 runs past the 🇩🇪 flag",
    "كلب أبيض يركض a dog",
    "A dog\x00barks\u2028at the cat",
    "Five o'clock: a man's dog-house, St. Mary's Ave. no. 5, U.S. 3.5m...",
    "a man ||| a woman | a child",
    "dog",
    "the the the the the the the the dog the the the",
    "Call (415) 555-1212 about the café — naïve",
    "A man sees " + " ".join(f"thing{i}" for i in range(1990)) + " in the street with a dog.",  # 2,000 words
]


def corpus_of(images: list[list[str]], tokens: Callable[[list[str]], list[str]]) -> Corpus:
    captions = Corpus.from_captions(
        Caption(f"c:{i}-{k}", f"i:{i}", "test", text) for i, texts in enumerate(images) for k, text in enumerate(texts)
    )
    return captions.with_tokens(tokens(captions.texts))


def opened(corpus: Corpus, folder: Path, **params: object) -> MeteorRelevance:
    source, runtime, rows = Meteor(MeteorParams(**params)), Runtime(threads=2), range(len(corpus))  # type: ignore[arg-type]

    def fill(work):  # type: ignore[no-untyped-def]
        work.facts["rows"] = [0, len(corpus)]
        make_all(source.tasks(corpus, rows, 100, runtime), work, runtime.progress)

    build(
        folder,
        ArtefactSpec("encoding", "meteor", source.fingerprint_params(corpus, rows, runtime), {"corpus": corpus.digest}),
        fill,
    )
    return source.open(OpenEncoding(corpus, folder, open_artefact(folder, "encoding"), runtime))


# Comparison with the original


def synonyms(count: int) -> list[list[str]]:
    """Make images whose captions consist of each other's WordNet synonyms, inflected."""
    with ZipFile(find_meteor_jar()) as file:
        lines = file.read("synonym/english.synsets").decode().splitlines()
    members: dict[str, list[str]] = {}
    for word, sets in zip(lines[::2], lines[1::2], strict=True):
        if word.isalpha() and len(word) > 3:
            for number in sets.split():
                members.setdefault(number, []).append(word)
    draw = random.Random(7)
    groups = [group for _, group in sorted(members.items()) if len(group) > 1]
    images = []
    for _ in range(count):
        chosen = draw.sample(groups, 6)
        images.append(
            [" ".join(draw.choice(g) + draw.choice(["", "s", "ed", "ing"]) for g in chosen) for _ in range(5)]
        )
    return images


@pytest.fixture(scope="module")
def corpus(coco: Corpus) -> Corpus:
    first = coco.rows(["test"]).start
    images = [coco.texts[first + 5 * i : first + 5 * i + 5] for i in range(40)]
    return corpus_of([*images, ODD[:5], [*ODD[5:], "A dog", "A man"], *synonyms(12)], lambda t: tokenize(t, Runtime()))


@pytest.fixture(scope="module")
def meteor(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeteorRelevance]:
    relevance = opened(corpus, tmp_path_factory.mktemp("a name with ümlaut and space") / "meteor")
    yield relevance
    relevance.close()


@pytest.fixture(scope="module")
def original() -> Iterator[Callable[[list[list[str]], list[str]], list[float]]]:
    """Score tokens by pycocoevalcap's wrapper, which runs the `java` on PATH."""
    from pycocoevalcap.meteor.meteor import Meteor as Wrapper

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(find_java().parent) + os.pathsep + os.environ["PATH"])
        wrapper = Wrapper()

    def score(references: list[list[str]], candidates: list[str]) -> list[float]:
        gts, res = dict(enumerate(references)), {i: [c] for i, c in enumerate(candidates)}
        return wrapper.compute_score(gts, res)[1]  # type: ignore[no-any-return]

    yield score
    wrapper.meteor_p.stdout.close()
    wrapper.meteor_p.stderr.close()


def sample(corpus: Corpus, count: int) -> tuple[References, np.ndarray]:
    """Draw pairs: half of an image's other captions and one of its own, half of an image and any caption."""
    draw = np.random.default_rng(2)
    references, captions = [], []
    for k in range(count):
        image = draw.integers(len(corpus.image_ids))
        rows = np.arange(*corpus.indptr[image : image + 2], dtype=np.int32)
        caption = draw.choice(rows) if k % 2 else draw.integers(len(corpus))
        references.append(rows[rows != caption] if k % 2 else rows[:5])
        captions.append(caption)
    return References.of(references), np.array(captions, np.int32)


@pytest.mark.java
def test_equals_pycocoevalcap(
    corpus: Corpus, meteor: MeteorRelevance, original: Callable[[list[list[str]], list[str]], list[float]]
) -> None:
    tokens = corpus.tokens
    assert tokens is not None
    references, captions = sample(corpus, 300)
    expected = original([[tokens[r] for r in group] for group in references], [tokens[c] for c in captions])
    scores = meteor.pairs(references, captions)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
    assert len(set(np.round(scores, 6))) > 100  # the sample covers many values
    assert scores.min() >= 0
    assert scores.max() <= 1


@pytest.mark.java
def test_poolings(corpus: Corpus, meteor: MeteorRelevance) -> None:
    references, captions = sample(corpus, 200)
    single = [
        meteor.pairs(References.single(group), np.full(len(group), c, np.int32))
        for group, c in zip(references, captions, strict=True)
    ]
    for pooling, by_hand in (("refs", np.max), ("max", np.max), ("mean", np.mean), ("paired", lambda s: s[0])):
        expected = [by_hand(s) for s in single]
        np.testing.assert_allclose(meteor.pairs(references, captions, pooling), expected, rtol=0, atol=1e-15)  # type: ignore[arg-type]
    assert not np.array_equal(meteor.pairs(references, captions, "mean"), meteor.pairs(references, captions, "max"))


@pytest.mark.java
def test_not_symmetric(meteor: MeteorRelevance) -> None:
    a, b = np.arange(0, 50, dtype=np.int32), np.arange(50, 100, dtype=np.int32)
    assert not np.allclose(meteor.pairs(References.single(a), b), meteor.pairs(References.single(b), a))
    assert Meteor.spec.symmetric is False


@pytest.mark.java
def test_a_text_against_itself_is_one_exactly(meteor: MeteorRelevance) -> None:
    """Check the value 1 that a caption among its own references gets without a question."""
    texts = [w for w in meteor.words[1:] if w.count(" ") < 40]
    texts += ["a", ".", "a " * 39 + "a", "a b " * 19 + "a b", "a a b " * 13 + "a", "running runs run ran " * 9 + "run"]
    assert len(texts) > 200
    assert set(meteor.scorer.score([f"{t} ||| {t}" for t in texts])) == {1.0}


@pytest.mark.java
def test_block_and_query_equal_pairs(corpus: Corpus, meteor: MeteorRelevance, monkeypatch: pytest.MonkeyPatch) -> None:
    captions = np.array([3, 3, 150, 205, 212], np.int32)
    references = corpus.references([0, 30, 40, 41])
    expected = [[meteor.pairs(corpus.references([m]), captions[[n]])[0] for n in range(5)] for m in (0, 30, 40, 41)]
    np.testing.assert_array_equal(meteor.block(references, captions), expected)
    monkeypatch.setattr("relabel.sources.relevance._BLOCK", 7)
    np.testing.assert_array_equal(meteor.block(references, captions), expected)
    assert meteor.block(references, captions[:0]).shape == (4, 0)
    row = 17
    single = References.single(np.full(5, row, np.int32))
    np.testing.assert_array_equal(meteor.query(corpus.texts[row], captions), meteor.pairs(single, captions))
    for odd in ("", "...", "😀", "\x00\u2028"):
        assert not meteor.query(odd, captions).any()


@pytest.mark.slow
@pytest.mark.java
def test_cxc_anchor(coco: Corpus, tmp_path: Path) -> None:
    """Check SITS test with the caption among its references: the published 0.757, and 0.524 over non-GT pairs."""
    from relabel.datasets.cxc import human_scores

    rows = coco.rows(["test"])
    table = coco.table.slice(rows.start, len(rows)).to_pylist()
    test = Corpus.from_captions(Caption(r["caption_id"], r["image_id"], "test", r["text"]) for r in table)
    test = test.with_tokens(tokenize(test.texts, Runtime()))
    human = human_scores("sits", "test")
    captions = np.array([test.row_of[c] for c in human.left], np.int32)
    references = test.references([test.image_of[i] for i in human.right])
    scores = opened(test, tmp_path / "meteor").pairs(references, captions)
    other = np.array([m != "c2i_original" for m in human.method])
    assert len(scores) == 44_833
    assert np.corrcoef(scores, human.score)[0, 1] == pytest.approx(0.757, abs=0.001)
    assert np.corrcoef(scores[other], human.score[other])[0, 1] == pytest.approx(0.524, abs=0.001)


# A Java that fails

FAKE = """
if "-stdio" not in sys.argv:  # the tokenizer, the normaliser
    {normaliser}
    sys.exit(sys.stdout.write(sys.stdin.read().lower()) and None)
open({log!r}, "a").write(f"start {{os.getpid()}}\\n")
{start}
for n, line in enumerate(sys.stdin):
    line = line.rstrip()
    open({log!r}, "a").write(f"{{line}}\\n")
    {trouble}
    if line == "EVAL":
        print("Error: specify Meteor stats")
    elif line.startswith("SCORE ||| "):
        print(" ".join([f"{{len(line)}}.0"] * 23))
    else:
        print(float(line.split()[2]) / 1000, float(line.split()[2]) / 1000, sep="\\n")
    sys.stdout.flush()
"""
"""Scores a pair by the length of its line."""


def words(texts: list[str]) -> list[str]:
    return [text.strip(".") for text in texts]


class Fake:
    def __init__(self, install: Callable[[str], Path], folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.install, self.folder, self.log = install, folder, folder / "log"
        table = folder / "table.gz"
        with gzip.open(table, "wb") as file:
            file.write(b"0.5\na dog\na hound\n")
        for module in ("meteor", "meteor.encode"):
            patch.setattr(f"relabel.sources.{module}.paraphrase_table", lambda language: table)

    def opened(
        self, images: list[list[str]], trouble: str = "pass", start: str = "", normaliser: str = "", **params: object
    ) -> MeteorRelevance:
        self.install(FAKE.format(log=str(self.log), trouble=trouble, start=start, normaliser=normaliser))
        return opened(corpus_of(images, words), self.folder / "meteor", **{"processes": 1, "silence": 20.0} | params)

    def lines(self, start: str) -> list[str]:
        return (
            [line for line in self.log.read_text().splitlines() if line.startswith(start)] if self.log.exists() else []
        )

    def all_gone(self) -> bool:
        pids = [int(line.split()[1]) for line in self.lines("start")]
        for _ in range(100):
            if not any(Path(f"/proc/{pid}/stat").exists() for pid in pids):
                return True
            time.sleep(0.05)
        return False


@pytest.fixture
def fake(fake_java: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(fake_java, tmp_path, monkeypatch)


def many(count: int) -> list[list[str]]:
    return [[f"caption {i} {'x' * (1 + i % 37)}"] for i in range(count)]


def against_next(relevance: MeteorRelevance) -> tuple[References, np.ndarray, list[float]]:
    """Return every caption paired with the next, and the scores that FAKE returns."""
    rows = np.arange(len(relevance.corpus) - 1, dtype=np.int32)
    texts = relevance.corpus.texts
    lines = [f"SCORE ||| {a} ||| {b}" for a, b in pairwise(texts)]
    return References.single(rows), rows + 1, [len(line) / 1000 for line in lines]


def test_answers_belong_to_their_questions(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "LINES_PER_PROCESS", 100)
    relevance = fake.opened(many(1000), "time.sleep(0.001 * (os.getpid() % 2))", processes=3)
    references, captions, expected = against_next(relevance)
    for _ in range(2):
        np.testing.assert_array_equal(relevance.pairs(references, captions), expected)
    assert len(fake.lines("start")) == 3
    relevance.close()
    assert fake.all_gone()


def test_each_question_is_asked_once(fake: Fake) -> None:
    relevance = fake.opened([["a dog", "a cat", "a dog"], ["a cow"], ["..."], ["a cat"]])
    first, rows = References.of([[0, 1, 2]]), np.array([3], np.int32)
    np.testing.assert_array_equal(relevance.pairs(first, rows), [0.035])
    assert fake.lines("SCORE") == ["SCORE ||| a dog ||| a cat ||| a cow"]
    relevance.pairs(first.take(np.zeros(9, np.int64)), rows.repeat(9))
    assert len(fake.lines("SCORE")) == 2
    assert len(fake.lines("EVAL |||")) == 1  # equal statistics have one score


def test_texts_without_words_send_no_question(fake: Fake) -> None:
    relevance = fake.opened([["a dog", "..."], ["."], ["..", "..."]])
    corpus = relevance.corpus
    assert not relevance.block(corpus.references([1, 2]), np.arange(5, dtype=np.int32)).any()
    assert relevance.pairs(corpus.references([0]), np.array([0], np.int32)) == [1.0]
    assert relevance.query("", np.arange(5, dtype=np.int32)).tolist() == [0] * 5
    assert len(relevance.pairs(References.of([]), np.empty(0, np.int32))) == 0
    assert not fake.lines("start")


def test_an_unreliable_process_is_replaced(fake: Fake) -> None:
    relevance = fake.opened(many(200), "if n == 60: sys.exit(1)")
    references, captions, expected = against_next(relevance)
    np.testing.assert_array_equal(relevance.pairs(references, captions), expected)
    assert len(fake.lines("start")) > 3


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("if 'poison' in line: sys.exit('java.lang.OutOfMemoryError')", "exit code 1 .*OutOfMemoryError"),
        ("if 'poison' in line: time.sleep(600)", "said nothing for 1.5 s"),
        ("if 'poison' in line: line = 'EVAL'", "'Error: specify Meteor stats', which is no answer"),
        ("if 'poison' in line: print('1.0 2.0', flush=True); continue", "'1.0 2.0', which is no answer"),
        ("if 'poison' in line: print('garbage', flush=True); continue", "'garbage', which is no answer"),
    ],
)
def test_the_fatal_pair_is_named(
    fake: Fake, trouble: str, reason: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "LINES_PER_PROCESS", 20)
    images = [*many(30), ["a poison pill", "another pill"], *many(30)]
    silent = "sleep" in trouble
    relevance = fake.opened(images, trouble, processes=processes, silence=1.5 if silent else 60.0)
    references = relevance.corpus.references(range(60))
    captions = np.roll(np.arange(60, dtype=np.int32), -1)
    captions[[29, 30]] = 5  # the fatal texts are references only, of one question
    with pytest.raises(PartialError, match=reason) as raised:
        relevance.pairs(references, captions)
    assert raised.value.exit_code == 5
    assert raised.value.where == "references c:30-0, c:30-1; caption c:5-0"
    assert "\n" not in str(raised.value)
    assert fake.all_gone()
    if not silent:
        with pytest.raises(PartialError, match=r"reference 'a caption'; caption c:30-0"):
            relevance.query("a caption", np.array([1, 30], np.int32))
    assert relevance.pairs(references.take(np.array([0])), captions[:1]) > 0  # other pairs still have scores
    relevance.close()


def test_a_missing_score_names_its_pair(fake: Fake) -> None:
    relevance = fake.opened([["a dog"], ["a cat"], ["a mouse in a house"]], "if '38.0' in line: sys.exit(9)")
    with pytest.raises(PartialError, match="exit code 9") as raised:
        relevance.pairs(References.of([[0], [0]]), np.array([1, 2], np.int32))
    assert raised.value.where == "references c:0-0; caption c:2-0"


def test_restarts_of_java_are_limited(fake: Fake) -> None:
    relevance = fake.opened(many(1000), "if n == 20: sys.exit(1)")
    references, captions, _ = against_next(relevance)
    with pytest.raises(PartialError, match="of 10 processes that ended") as raised:
        relevance.pairs(references, captions)
    assert "caption c:" in str(raised.value.where)
    assert len(fake.lines("start")) == 10
    assert fake.all_gone()


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("sys.exit('Error: Could not reserve enough space for object heap')", "does not start: .*Could not reserve"),
        ("time.sleep(600)", "does not start: Java said nothing for 0.5 s"),
        ("[print('garbage', flush=True) for _ in range(1000)]", "does not start: Java said 'garbage'"),
    ],
)
def test_a_failed_start_is_an_error(fake: Fake, start: str, reason: str) -> None:
    relevance = fake.opened(many(10), start=start, silence=0.5)
    references, captions, _ = against_next(relevance)
    with pytest.raises(PartialError, match=reason) as raised:
        relevance.pairs(references, captions)
    assert raised.value.where == "references c:0-0; caption c:1-0"
    assert fake.all_gone()


def test_foreign_lines_at_the_start_are_ignored(fake: Fake) -> None:
    relevance = fake.opened(many(10), start="print('Picked up a warning', flush=True)")
    references, captions, expected = against_next(relevance)
    np.testing.assert_array_equal(relevance.pairs(references, captions), expected)


def test_answers_of_a_failed_call_are_discarded(fake: Fake) -> None:
    relevance = fake.opened([*many(20), ["a poison pill"]], "if 'poison' in line: sys.exit(1)")
    references, captions, expected = against_next(relevance)
    with pytest.raises(PartialError):
        relevance.pairs(references, captions)
    fine = np.arange(19)[::-1]
    np.testing.assert_array_equal(relevance.pairs(references.take(fine), captions[fine]), np.array(expected)[fine])


def test_threads_take_turns(fake: Fake) -> None:
    relevance = fake.opened(many(300))
    references, captions, expected = against_next(relevance)
    with ThreadPoolExecutor(4) as threads:
        for scores in threads.map(lambda _: relevance.pairs(references, captions), range(8)):
            np.testing.assert_array_equal(scores, expected)


def test_a_failed_normaliser_is_an_error(fake: Fake) -> None:
    with pytest.raises(PartialError, match="METEOR's normaliser fails: 3 lines went in, 2 came out"):
        fake.opened(many(3), normaliser="sys.exit(print('a', 'b', sep='\\n'))")


# Contract of a source


def test_rows_outside_the_encoding(fake: Fake) -> None:
    relevance = fake.opened(many(10))
    for bad in (-1, 10):
        with pytest.raises(IndexError, match="encoded rows 0 to 10"):
            relevance.pairs(References.of([[1]]), np.array([bad], np.int32))
        with pytest.raises(IndexError):
            relevance.pairs(References.of([[bad]]), np.array([1], np.int32))


def test_no_tokens(tmp_path: Path) -> None:
    bare = Corpus.from_captions([Caption("c:1", "i:1", "test", "a dog")])
    with pytest.raises(MissingError, match=r"no PTB tokens.*relabel ingest") as raised:
        opened(bare, tmp_path / "meteor")
    assert raised.value.exit_code == 3


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relabel.core.java.java_candidates", lambda: iter(()))
    with pytest.raises(MissingError, match=r"no Java that runs.*relabel-itr\[java\]"):
        opened(corpus_of(many(2), words), tmp_path / "meteor")


def test_parameters_of_scores_are_in_the_fingerprint(fake: Fake) -> None:
    corpus, runtime = corpus_of(many(2), words), Runtime()

    def semantic(**params: object) -> dict[str, object]:
        return Meteor(MeteorParams(**params)).fingerprint_params(corpus, range(2), runtime)  # type: ignore[arg-type]

    assert semantic() == semantic(heap="4G", processes=7, silence=1.0, pooling="mean")
    before = semantic()
    with gzip.open(fake.folder / "table.gz", "ab") as file:
        file.write(b"0.5\na cat\na feline\n")
    assert semantic() != before


@pytest.mark.parametrize(
    "bad", [{"heap": "2"}, {"heap": "x -jar"}, {"processes": 0}, {"language": "xx"}, {"silence": 0}]
)
def test_invalid_parameters(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MeteorParams(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("pooling", ["paired", "max", "mean", "refs"])
def test_every_pooling_is_accepted(pooling: Pooling) -> None:
    assert Meteor(MeteorParams(pooling=pooling)).tokenizer() == "ptb"
