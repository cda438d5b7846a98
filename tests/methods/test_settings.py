"""Variants: of the greedy methods another ablation, of a search other settings."""

from dataclasses import replace

import pytest

from discogp_lib.config import SearchConfig
from discogp_lib.errors import ConfigError
from discogp_lib.methods.settings import (
    base_method,
    edge_ablation,
    needs_budget,
    settings_for,
    variant_names,
)
from discogp_lib.sheaf import Sheaf
from tests.quick import QUICK
from tests.reference import masked, planted_gpt2


@pytest.mark.parametrize("name", ["acdc", "eap", "eap_ig"])
@pytest.mark.parametrize("ablation", ["mean", "interchange"])
def test_a_greedy_variant_changes_the_ablation_alone(name, ablation):
    budget = Sheaf.full(masked(planted_gpt2()))
    variant = f"{name}@{ablation}"
    assert base_method(variant) == name
    assert needs_budget(variant)
    plain, changed = (settings_for(m, QUICK, budget).as_dict() for m in (name, variant))
    assert changed == {**plain, "ablation": ablation}
    assert (edge_ablation(name), edge_ablation(variant)) == ("zero", ablation)


@pytest.mark.parametrize("method", ["acdc@sequential", "random@mean", "discogp@interchange", "x"])
def test_variants_that_make_no_sense_are_refused(method):
    with pytest.raises(ConfigError, match=f"no method '{method}'"):
        base_method(method)


@pytest.mark.parametrize("method", ["discogp@", "acdc@", "@mean"])
def test_half_a_name_is_no_method(method):
    with pytest.raises(ConfigError, match=f"no method '{method}'"):
        base_method(method)


def test_discogp_still_needs_no_budget():
    assert not needs_budget("discogp@mean")
    assert settings_for("discogp@mean", QUICK, None).ablation == "mean"


def test_a_profile_may_have_its_own_acdc():
    budget = Sheaf.full(masked(planted_gpt2()))
    coarse = replace(QUICK, acdc={"prompts": 8, "ranked": True})
    for name in ("acdc", "acdc@mean"):
        plain, changed = (settings_for(name, p, budget).as_dict() for p in (QUICK, coarse))
        assert changed == {**plain, "prompts": 8, "ranked": True}
    assert settings_for("eap", coarse, budget) == settings_for("eap", QUICK, budget)


def test_variants_of_a_profile_are_those_that_change_something():
    plain = variant_names(SearchConfig())
    assert {"sequential", "distribution", "incomplete", "push2.0"} <= set(plain)
    assert not {"joint", "label", "complete"} & set(plain)
    other = variant_names(
        SearchConfig(schedule="sequential", fidelity="distribution", completeness=0.0)
    )
    assert {"joint", "label", "complete"} <= set(other)
    assert not {"sequential", "distribution", "incomplete"} & set(other)
    # Controls change what is searched, whatever the settings.
    assert "shuffled" in variant_names(SearchConfig(fidelity="gold"))
    assert set(plain) | set(other) == set(variant_names())
