"""Every method has the one signature, and says where its sheaf comes from."""

import inspect

import pytest

import discogp_lib as dgp
from discogp_lib.config import SearchConfig
from discogp_lib.discover import CONFIGS
from discogp_lib.methods.controls import MatchedConfig
from discogp_lib.methods.edge_config import EdgeConfig
from discogp_lib.sheaf import Sheaf
from tests.reference import masked, planted_gpt2, planted_task


def test_every_method_has_its_kind_of_settings():
    assert set(CONFIGS) == set(dgp.METHODS)


@pytest.mark.parametrize("name", dgp.METHODS)
def test_methods_share_one_signature(name):
    parameters = list(inspect.signature(dgp.METHODS[name]).parameters)
    assert parameters == ["model", "task", "config", "seed", "checkpoint", "progress"]


@pytest.mark.parametrize("name", [n for n, kind in CONFIGS.items() if kind is not SearchConfig])
def test_a_sheaf_says_where_it_comes_from(name, tmp_path):
    model, task = masked(planted_gpt2()), planted_task(8)
    config = MatchedConfig.like(Sheaf.full(model)) if name == "random_matched" else None
    sheaf = dgp.discover(model, task, name, seed=2, config=config, progress=False)
    assert sheaf.metadata["method"] == name
    assert sheaf.metadata["task"] == "planted"
    assert sheaf.metadata["seed"] == 2
    assert sheaf.metadata["config"] == (config or CONFIGS[name]()).as_dict()
    sheaf.save(tmp_path / "a.sheaf")
    assert dict(Sheaf.load(tmp_path / "a.sheaf").metadata) == sheaf.metadata


def test_unknown_settings_are_named():
    with pytest.raises(dgp.DiscoGPError, match="Unknown settings colour"):
        EdgeConfig.from_dict({"colour": 1})
