"""Contract: positives are compared with those of people over the judged queries only; the order of models is compared
by Kendall's tau, in each group of models.
"""

from __future__ import annotations

import pytest

from experiments.audit_models import PEOPLE, agreement, orders
from relabel_train.metrics import positives_of


def test_precision_and_recall_are_of_judged_queries() -> None:
    found = positives_of({0: [0, 1], 1: [2, 3]}, {0: [0], 3: [0, 1]}, range(2), range(4))
    people = positives_of({1: [1, 2]}, {3: [1], 2: [1]}, range(2), range(4))
    shares = {"i2t precision": 50.0, "i2t recall": 50.0, "t2i precision": 50.0, "t2i recall": 50.0}
    assert agreement(found, people) == shares
    assert agreement(people, people) == dict.fromkeys(shares, 100.0)


def test_orders_of_groups_of_models() -> None:
    rows = [("sbert", 5.0, 1.0), ("cider", 4.0, 4.0), ("vsepp, a, seed 1", 3.0, 3.0), ("vsepp, b, seed 1", 2.0, 2.0)]
    records = [{"model": name, "R@1": value, PEOPLE: people} for name, value, people in rows]
    (found,) = orders(records)
    # Of six pairs, the three with sbert are in the opposite order.
    assert found == {"figure": "R@1", "all (4)": 0.0, "without sbert (3)": 1.0, "trainings (2)": pytest.approx(1.0)}
