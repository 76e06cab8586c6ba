"""Contract: a model folder is data. No code that its files name is run and nothing is unpickled: the folder is
refused with the file and the type before a loader reads it, for every way of finding it and every command.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.relabel.sources.sbert.tiny_encoder import small_corpus, tiny_encoder

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.sources.models import checks
from relabel.sources.models.files import find_model
from relabel.sources.models.loading import load_from_folder, load_model

CODE = """
import os
from pathlib import Path
from torch import nn

Path(os.environ["MARK"]).touch()  # a loader imports a copy of this file from elsewhere


class Evil(nn.Module):
    load = classmethod(lambda cls, *args, **kwargs: cls())
    forward = lambda self, features: features
"""
Poison = Callable[[Path], None]


class PickledObject:
    """Object whose unpickling creates a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that loads."""
    return tiny_encoder(tmp_path_factory.mktemp("clean"), layers=1)


@pytest.fixture
def folder(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy with a code file in it, whose module can be imported."""
    shutil.copytree(clean, tmp_path / "model")
    (tmp_path / "model" / "evil.py").write_text(CODE)
    monkeypatch.setenv("MARK", str(tmp_path / "model" / "mark"))
    monkeypatch.chdir(tmp_path / "model")
    monkeypatch.syspath_prepend(str(tmp_path / "model"))
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return tmp_path / "model"


def change(file: str, **values: Any) -> Poison:
    """Set keys of a JSON file; they may be new."""

    def poison(folder: Path) -> None:
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        body = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(body | values))

    return poison


def module(kind: Any, path: Any = "", at: int | None = None) -> Poison:
    """Add a module to the list, or replace the first one."""

    def poison(folder: Path) -> None:
        listed = json.loads((folder / "modules.json").read_text())
        entry = {"idx": len(listed), "name": str(len(listed)), "path": path, "type": kind}
        listed[len(listed) if at is None else at : len(listed)] = [entry]
        (folder / "modules.json").write_text(json.dumps(listed))

    return poison


def write(file: str, text: str) -> Poison:
    return lambda folder: (folder / file).write_text(text) and None


def with_dense(**values: Any) -> Poison:
    """Add a dense layer that is valid except for the type that it names."""

    def poison(folder: Path) -> None:
        from sentence_transformers.models import Dense

        (folder / "2_Dense").mkdir()
        Dense(32, 8).save(str(folder / "2_Dense"))
        module("sentence_transformers.models.Dense", "2_Dense")(folder)
        change("2_Dense/config.json", **values)(folder)

    return poison


def pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(PickledObject(folder / "mark")))


def pickled_dense(folder: Path) -> None:
    with_dense()(folder)
    (folder / "2_Dense" / "model.safetensors").unlink()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickle.dumps(PickledObject(folder / "mark")))


def torch_itself(folder: Path) -> None:
    (folder / "weights.dat").write_bytes(pickle.dumps(PickledObject(folder / "mark")))
    module("sentence_transformers.models.Dense.torch", "weights.dat")(folder)


POOLING = "sentence_transformers.models.Pooling"
MODULES: dict[str, tuple[Poison, str]] = {
    "a module beside modules.json": (module("evil.Evil"), "'evil.Evil'"),
    "custom_st": (module("custom_st.Transformer", at=0), r"'custom_st\.Transformer'"),
    "a module of another repository": (module("acme/code--evil.Evil"), "'acme/code--evil.Evil'"),
    "a name that begins alike": (module("sentence_transformers_evil.Pooling"), "_evil"),
    "a router, which names types of its own": (module("sentence_transformers.models.Router", "r"), "Router"),
    "a package seen through sentence_transformers": (torch_itself, r"Dense\.torch"),
    "a type that is no text": (module(7), "`type` and a `path`"),
    "a path that is no text": (module(POOLING, None), "`path`"),
    "an absolute path": (module(POOLING, "/etc"), "'/etc'"),
    "a path that leaves": (module(POOLING, "a/../../b"), "not inside"),
    "a path with a backslash": (module(POOLING, "..\\b"), "not inside"),
    "no list of modules": (write("modules.json", '{"0": "evil.Evil"}'), "not a list of modules"),
    "a list of names": (write("modules.json", '["evil.Evil"]'), "not a list of modules"),
    "no JSON": (write("modules.json", "[[[" * 100_000), "not JSON"),
}
SENTENCE, CONFIG = "sentence_bert_config.json", "config.json"
ACTIVATION = "sbert_ce_default_activation_function"
INSIDE = {"auto_map": {"AutoModel": "acme/code--evil.Evil"}}
CHANGES: dict[str, tuple[str, str, Any, str]] = {
    "a tokenizer": ("1_Pooling/wordembedding_config.json", "tokenizer_class", "evil.Evil", "tokenizer_class"),
    "a configuration": (CONFIG, "auto_map", {"AutoModel": "evil.Evil"}, r"evil\.Evil"),
    "a configuration inside another": (CONFIG, "text_config", INSIDE, "auto_map"),
    "code of a tokenizer": ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["evil.Evil", None]}, "auto_map"),
    "a class that is no tokenizer": ("tokenizer_config.json", "tokenizer_class", "RagRetriever", "RagRetriever"),
    "trust": (SENTENCE, "model_args", {"trust_remote_code": True}, "trust_remote_code"),
    "other weights": (SENTENCE, "model_args", {"use_safetensors": False}, "use_safetensors"),
    "a kernel": (SENTENCE, "model_kwargs", {"attn_implementation": "acme/kernel"}, "acme/kernel"),
    "an activation of a cross-encoder": (CONFIG, "sentence_transformers", {"activation_fn": "evil.Evil"}, "evil"),
    "a function of torch": (CONFIG, ACTIVATION, "torch.utils.collect_env.main", "collect_env"),
    "an adapter": ("adapter_config.json", "megatron_core", "evil", "adapter"),
    "an index of pickled weights": ("model.safetensors.index.json", "weight_map", {"a": "../evil.bin"}, r"\.\./evil"),
}
POISONS: dict[str, tuple[Poison, str, str]] = {
    "an activation": (with_dense(activation_function="evil.Evil"), "2_Dense/config.json", r"evil\.Evil"),
    "the end of the process": (with_dense(activation_function="os.abort"), "2_Dense/config.json", r"os\.abort"),
    "pickled weights": (pickled_weights, "", r"pytorch_model\.bin are pickled"),
    "pickled weights of a module": (pickled_dense, "", r"2_Dense/pytorch_model\.bin are pickled"),
}
POISONS |= {name: (poison, "modules.json", message) for name, (poison, message) in MODULES.items()}
POISONS |= {name: (change(file, **{key: value}), file, words) for name, (file, key, value, words) in CHANGES.items()}


def check(folder: Path, file: str, message: str, act: Callable[[], object]) -> None:
    """Check that an action is refused with the name of the file and that no code ran."""
    with pytest.raises(CheckError, match=message) as caught:
        act()
    assert caught.value.where == str(folder / file)
    assert "\n" not in str(caught.value)
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("name", POISONS)
def test_code_is_refused_when_a_model_is_found_and_when_it_is_loaded(name: str, folder: Path) -> None:
    poison, file, message = POISONS[name]
    poison(folder)
    check(folder, file, message, lambda: find_model(str(folder)))
    check(folder, file, message, lambda: load_model(folder, "cpu", None))
    check(folder, file, message, lambda: load_from_folder("CrossEncoder", folder))


def test_every_command_that_takes_a_model_refuses_it(folder: Path, tmp_path: Path) -> None:
    from experiments.params import ProxyFeaturesParams
    from experiments.proxy_features import proxy_features
    from relabel.config import Config
    from relabel.sources.bert_sts import BertSts
    from relabel.sources.bert_sts.params import BertStsParams
    from relabel.sources.bert_sts.tune import TuneBertStsParams, tune_bert_sts
    from relabel.sources.sbert import Sbert, SbertParams
    from relabel.sources.sbert.tune import TuneSbertParams, tune_sbert
    from relabel.stages import Session

    poison, file, message = POISONS["a module beside modules.json"]
    poison(folder)
    change("config.json", architectures=["BertForSequenceClassification"], num_labels=1)(folder)
    runtime = Runtime(data=tmp_path)
    name, out = str(folder), tmp_path / "out"
    corpus = small_corpus()
    sbert, bert_sts = Sbert(SbertParams(model=name)), BertSts(BertStsParams(model=name))
    check(folder, file, message, lambda: sbert.fingerprint_params(corpus, range(3), runtime))
    check(folder, file, message, lambda: bert_sts.fingerprint_params(corpus, range(3), runtime))
    session = Session(Config(), runtime, out)
    proxies = ProxyFeaturesParams(encoder="transformer", model=name)
    check(folder, file, message, lambda: tune_sbert(TuneSbertParams(base=name), corpus, runtime).spec())
    check(folder, file, message, lambda: PairScorer(folder, BertStsParams(), runtime))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.proxy_features.open_corpus", lambda session: corpus)
        check(folder, file, message, lambda: proxy_features(session, proxies))
        patch.setattr("relabel.sources.bert_sts.tune.find_stsb_files", lambda runtime: {})
        check(folder, file, message, lambda: tune_bert_sts(TuneBertStsParams(base=name), runtime).spec())
    assert not out.exists()


def test_code_in_the_hub_cache_is_refused(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    snapshot = tmp_path / "models--acme--mini" / "snapshots" / ("c" * 40)
    shutil.copytree(clean, snapshot)
    (tmp_path / "models--acme--mini" / "refs").mkdir()
    (tmp_path / "models--acme--mini" / "refs" / "main").write_text("c" * 40)
    assert find_model("acme/mini").folder == snapshot
    (snapshot / "evil.py").write_text(CODE)
    module("evil.Evil")(snapshot)
    check(snapshot, "modules.json", "'evil.Evil'", lambda: find_model("acme/mini"))


def test_models_that_name_no_code_are_accepted(clean: Path, folder: Path) -> None:
    for path in (clean, folder):  # code that no file names is ignored
        assert load_model(path, "cpu", None).encode(["a dog"]).shape == (1, 32)
    with_dense()(folder)
    change("sentence_bert_config.json", model_args={"attn_implementation": "eager"})(folder)
    change("config.json", hidden_act="gelu", auto_map={})(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(PickledObject(folder / "mark")))
    (folder / "training_args.bin").write_bytes(pickle.dumps(PickledObject(folder / "mark")))
    assert load_model(find_model(str(folder)).folder, "cpu", None).encode(["a dog"]).shape == (1, 8)
    assert not (folder / "mark").exists()


def test_allowed_classes_exist() -> None:
    from sentence_transformers import models

    # LogitScore is a module of cross-encoders; test_images.py loads one.
    for name in set(checks.MODULES) - {"LogitScore"}:
        assert hasattr(models, name)
