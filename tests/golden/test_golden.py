"""Contract: relabel computes what is frozen in `values`, within the tolerances beside it; a changed, missing or added
value is named; what values cannot show is held by other tests, which exist.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import store, versions
from tests.golden.__main__ import compare

ROOT = Path(__file__).parents[2]
SMOKES: dict[str, tuple[str, str]] = {
    "recall of an approximate index": (
        "relabel/neighbours/test_faiss_index.py",
        "test_recall_is_measured_and_lists_have_k_rows",
    ),
    "fit in two processes": ("relabel_train/reference/test_distributed.py", "test_relabel_fit_runs_under_torchrun"),
    "fit is resumed": ("relabel_train/reference/test_fit.py", "test_a_killed_run_equals_an_uninterrupted_one"),
    "eval over averages": ("relabel_train/reference/test_evaluate.py", "test_sgraf_is_the_average_of_two_runs"),
    "vectors of images": ("relabel/export/test_image_vectors.py", "test_blocks_equal_a_loop_over_the_files_of_vectors"),
    "a lookup on a device": ("relabel_train/test_lookup_device.py", "test_blocks_equal_those_of_the_mapped_lookup"),
    "label shards under several workers": (
        "relabel_train/test_webdataset.py",
        "test_missing_keys_are_refused_or_counted_over_all_workers",
    ),
    "a download that resumes": ("relabel/datasets/test_download.py", "test_a_broken_transfer_resumes_in_the_next_run"),
    "the report's search offline": (
        "relabel/page/test_report_browser.py",
        "test_a_search_lists_the_nearest_captions_of_each_label",
    ),
    "memory of a search": ("relabel/sources/test_vector_search.py", "test_memory_limit_holds_for_every_k"),
}
"""What values do not show, and the test below `tests` that does. Statistics of a file, `score(documents=)` and eval
over folds are frozen: `small/figures/file/*`, `scores/documents`, `small/fit/*/metrics`.
"""


def lines(frozen: dict[str, Any], found: dict[str, Any], **tolerance: float) -> list[str]:
    return list(store.differences("u", frozen, found, [("*", store.Tolerance(**tolerance))], "*"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_everything_is_as_frozen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(tmp_path) == 0, capsys.readouterr().out


def test_a_source_with_other_values_has_another_version() -> None:
    assert list(versions.problems(versions.read(), versions.current())) == []
    frozen = versions.current()
    version, digest = frozen["cider"]
    (line,) = versions.problems(frozen, frozen | {"cider": (version, "other values")})
    assert "raise encoding.cider in" in line
    (line,) = versions.problems(frozen, frozen | {"cider": ((version or 0) + 1, digest)})
    assert "raise" not in line


def test_a_changed_value_is_named_with_its_place_and_size() -> None:
    frozen = {"a/b": np.linspace(0, 1, 12).reshape(3, 4)}
    changed = {"a/b": frozen["a/b"].copy()}
    changed["a/b"][1, 2] += 1e-3
    (line,) = lines(frozen, changed, absolute=1e-4)
    assert line.startswith("u/a/b: largest difference 0.001 at (1, 2)")
    assert "tolerance absolute 0.0001" in line
    assert lines(frozen, changed, absolute=2e-3) == []
    changed["a/b"][0, 0] = np.nan
    assert "at (0, 0)" in lines(frozen, changed, absolute=1)[0]
    assert "shape (2, 4), frozen (3, 4)" in lines(frozen, {"a/b": frozen["a/b"][:2]})[0]


@pytest.mark.parametrize(
    ("frozen", "found", "said"),
    [
        ({"r": 0.5, "n": 3}, {"r": 0.52, "n": 3}, "r differs by 0.02 (0.5 is 0.52)"),
        ({"r": [1, None]}, {"r": [1, 2]}, "r[1]: frozen None, found 2"),
        ({"r": 1}, {"r": 1, "s": 1}, "has other keys: s"),
        ({"named": True}, {"named": False}, "named: frozen True, found False"),
    ],
)
def test_a_changed_figure_is_named(frozen: Any, found: Any, said: str) -> None:
    (line,) = lines({"x": frozen}, {"x": found}, absolute=1e-2)
    assert said in line
    assert lines({"x": frozen}, {"x": frozen}) == []


def test_missing_and_added_entries_are_named() -> None:
    assert lines({"a": 1}, {}) == ["u/a: missing; it is frozen and was not computed"]
    assert lines({}, {"a": 1})[0].startswith("u/a: not frozen")


def test_ids_may_change_places_only_where_scores_are_nearly_equal() -> None:
    frozen = {"ids": np.array([[1, 2, 3, 4]]), "scores": np.array([[0.9, 0.5, 0.5, 0.1]])}
    assert lines(frozen, frozen | {"ids": np.array([[1, 3, 2, 5]])}, tied=1e-5, absolute=1e-5) == []
    assert len(lines(frozen, frozen | {"ids": np.array([[2, 1, 3, 4]])}, tied=1e-5)) == 1
    assert len(lines(frozen, frozen | {"ids": np.array([[1, 3, 2, 4]])})) == 1


def test_costs_may_fall_and_grow_within_bounds() -> None:
    frozen = {"encode": {"cpu seconds": 10.0}}
    assert lines(frozen, {"encode": {"cpu seconds": 1.0}}, factor=2, absolute=5) == []
    assert len(lines(frozen, {"encode": {"cpu seconds": 26.0}}, factor=2, absolute=5)) == 1


def test_values_are_small_and_read_back(tmp_path: Path) -> None:
    values = {"a/b": np.arange(3.0), "c": {"d": [1, "x"]}}
    store.write("u/v", values, tmp_path)
    assert lines(store.read("u/v", tmp_path), values) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u.v.json", "u.v.npz"]
    assert max(path.stat().st_size for path in store.VALUES.iterdir()) <= store.LIMIT


@pytest.mark.parametrize("smoke", SMOKES)
def test_what_values_do_not_show_is_held_by_a_test(smoke: str) -> None:
    file, name = SMOKES[smoke]
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
