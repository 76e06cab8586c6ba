"""Contract: docstrings, comments, messages and hand-written pages are in plain English.

Sentences that need a second reading often have one of the phrases below. Each of them is sometimes the right word, so
the test limits their number per 10,000 words. The code of scikit-learn has about 20.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PHRASES = re.compile(
    r"\balone\b|\bwhose\b|\bbeside\b|\banew\b|\bfor ever\b|\brefuse[sd]?\b|\bno more than\b|\bin place of\b"
    r"|(?<!\bat )\b(?:least|most)\b(?! of the| often| common)|\b(?:largest|greatest|smallest)\b"
    r"|, (?:so that|which|where|else)\b|[.;:] [Ww]here\b|\bor else\b|\btakes? (?:its|their|the) place\b"
    r"|\bof (?:its|their|your|our|one's) own\b|\bas (?:it is|they are)\b|\bt(?:old|ells?) (?:\w+ )?apart\b"
    r"|\b(?:is|are|was|were) (?:no|none|made of)\b"
)
LIMIT = 25
PAGES = [*ROOT.glob("[A-Z]*.md"), *(p for p in ROOT.glob("docs/**/*.md") if p.name not in ("api.md", "reference.md"))]
PACKAGES = [
    file.parent for root in ("pipeline/relabel", "cli", "training") for file in ROOT.glob(f"{root}/*/__init__.py")
]
GROUPS = {"pages": PAGES, "relabel": [*ROOT.glob("pipeline/relabel/*.py")]} | {
    package.name: [*package.rglob("*.py")] for package in sorted(PACKAGES)
}


def texts_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and text of every docstring, message and comment of a module, or paragraph of a page."""
    source, line = path.read_text(encoding="utf-8"), 1
    if path.suffix == ".md":
        source = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), source, flags=re.DOTALL)
        for paragraph in re.split(r"(?<=\n)(?=\n|[|#-])", source):
            yield f"{path.relative_to(ROOT)}:{line}", " ".join(paragraph.split())
            line += paragraph.count("\n")
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if tokenize.tok_name[token.type] in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            yield f"{path.relative_to(ROOT)}:{token.start[0]}", " ".join(token.string.split())


@pytest.mark.parametrize("group", GROUPS)
def test_turns_of_phrase_are_rare(group: str) -> None:
    texts = [text for file in GROUPS[group] for text in texts_of(file)]
    found = {place: hits for place, text in texts if (hits := PHRASES.findall(text))}
    rate = 10_000 * sum(map(len, found.values())) / sum(len(text.split()) for _, text in texts)
    worst = "; ".join(f"{place} {found[place]}" for place in sorted(found, key=lambda place: -len(found[place]))[:10])
    assert rate <= LIMIT, f"{rate:.0f} per 10,000 words, the worst: {worst}"
