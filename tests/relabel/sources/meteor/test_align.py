"""Contract: each rule of the alignment, with the scores of METEOR's jar. The pairs were chosen so that another rule, or
another weight, changes the score of one of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.relabel.sources.meteor.fixtures import score

pytestmark = pytest.mark.usefixtures("meteor_jar")
# References and candidates, with the scores of the jar.
PAIRS: dict[tuple[str, str], float] = {
    (
        "small walking runs walks is hound walks bike street couple person to two run",
        "little is people city bicycle dog walk standing two",
    ): 0.0993855212913803,
    (
        "run walks is bicycle couple walks of dogs run street dogs",
        "run dog road street running bicycle walk bicycle big dogs top people walks large bike",
    ): 0.2503466124867008,
    ("is couple to runs two man huge", "person bike big huge little people huge city"): 0.1336918004493972,
    ("is big running runs in sitting hound", "is big running runs in sitting hound"): 1.0,
    ("a dog", "two cats"): 0.0,
    # Texts of 66 to 153 words, for which the used words are two and three masks.
    ("a dog runs to the street " * 11, "the dog running on a street " * 11): 0.34805394176954857,
    (
        "a man walks two people walking to a city " * 17,
        "a person is walking two men in the town " * 15,
    ): 0.208354000217971,
    ("the " * 99 + "dog", "a " + "the " * 69 + "dog"): 0.5200581264875636,
}


def test_scores_are_those_of_the_jar() -> None:
    np.testing.assert_allclose(
        score([(a.strip(), b.strip()) for a, b in PAIRS]), list(PAIRS.values()), rtol=0, atol=1e-9
    )


def test_texts_without_words_and_texts_that_are_too_long() -> None:
    text = "a dog " * 512
    pairs = [("", "a dog"), ("a dog", ""), ("", ""), (text.strip(), text.strip()), (text + "runs", "a dog")]
    np.testing.assert_array_equal(score(pairs), [0.0, 0.0, 0.0, 1.0, np.nan])
