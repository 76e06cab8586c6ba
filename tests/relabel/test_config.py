"""Contract: parameters come from the defaults, the file, settings and options, in this order. An unknown parameter
is refused with its name and origin.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.config import DEFAULT_SOURCES, Config, load_config
from relabel.core.errors import UsageError
from relabel.core.parameters import setting, with_settings


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_file_the_defaults_apply() -> None:
    assert load_config(None) == Config() == Config(sources=DEFAULT_SOURCES)
    assert load_config(Path(__file__).parents[2] / "params.yaml") == Config()


def test_only_load_config_reads_the_file_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("judge: {seed: 5}\nsources: {mine: {source: cider, sigma: 3}}\n")
    assert (load_config(None).judge.seed, [*load_config(None).sources]) == (5, ["mine"])
    assert (Config().judge.seed, Config().sources.keys()) == (0, DEFAULT_SOURCES.keys())
    (tmp_path / "params.yaml").write_text("judge: {seed: -5}\n")
    with pytest.raises(UsageError, match=r"params\.yaml: judge\.seed"):
        load_config(None)


def test_later_values_override_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("judge: {seed: 1, resamples: 10}\n")
    assert load_config(None).judge.seed == 1
    config = load_config(
        None, ["judge.seed=2", "sources.cbow.vectors=word2vec"], {"judge.seed": 3, "judge.split": None}
    )
    assert (config.judge.seed, config.judge.resamples, config.judge.split) == (3, 10, "test")
    assert config.sources["cbow"].model_dump()["vectors"] == "word2vec"
    assert set(config.sources) == set(Config().sources)


@pytest.mark.parametrize(
    "value", [None, True, 5, 1e-6, "IVF4,Flat;nprobe=2", "1", "null", "no", "a: b", "é ", "", ["x"]]
)
def test_a_setting_gives_its_value_back(value: object) -> None:
    assert with_settings({}, [setting("a.b", value)], {}) == {"a": {"b": value}}


def test_the_name_of_a_source_is_a_label_with_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("sources: {mine: {source: cider, sigma: 3}}\n")
    config = load_config(None)
    assert config.params("cider").model_dump()["sigma"] == 6.0
    assert config.params("mine").model_dump()["sigma"] == 3.0
    assert list(config.sources) == ["mine"]  # the label of a source is built on request only
    with pytest.raises(UsageError, match="no label 'ciderr'"):
        config.params("ciderr")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("judge: {sead: 1}", "judge: sead"),
        ("neighbours: {k: many}", "neighbours.k"),
        ("sources: {mine: {sigma: 3}}", r"sources: mine\.source: no source 'mine'"),
        ("sources: {mine: {source: cider, sigmma: 3}}", "sigmma"),
        ("sources: {mine: {source: nothing}}", "no source 'nothing'"),
        ("- a list", "expected a mapping"),
        ("a: [", "not YAML"),
        ("export: {trec: {levels: [0.1, .nan]}}", r"export\.trec\.levels"),
        ("sources:\n  10: {source: cider}", r"params\.yaml: .*a key that is not text; quote it[^/]*line 2, column 3"),
    ],
)
def test_unknown_parameters_are_refused(body: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(body)
    with pytest.raises(UsageError, match=said):
        load_config(None)


@pytest.mark.parametrize(
    "setting", ["judge", "judge.seed.deep=1", "judge.nothing=1", "judge.seed=[", "judge.split=train"]
)
def test_a_wrong_setting_is_refused(setting: str) -> None:
    with pytest.raises(UsageError):
        load_config(None, [setting])
