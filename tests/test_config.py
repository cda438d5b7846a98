"""Settings: their schedule, their identity, and which are refused."""

import json
from dataclasses import fields, replace

import pytest

import discogp_lib as dgp
from discogp_lib.config import Push, SearchConfig
from discogp_lib.discover import CONFIGS
from discogp_lib.errors import ConfigError
from discogp_lib.methods.acdc import AcdcConfig
from discogp_lib.methods.eap import EapConfig, EapIgConfig
from tests.reference import masked, planted_gpt2, planted_task


def test_every_setting_survives_json():
    config = SearchConfig(
        schedule="sequential", steps=7, weight_push=Push(largest=1e-3, fall=0.2, last=0.5)
    )
    again = SearchConfig.from_dict(json.loads(json.dumps(config.as_dict())))
    assert again == config
    assert again.sha256() == config.sha256()


def test_identity_changes_with_every_setting():
    config, seen = SearchConfig(), set()
    changes = {
        "schedule": "sequential",
        "fidelity": "distribution",
        "ablation": "mean",
        "weight_push": Push(largest=1.0),
        "edge_push": Push(largest=1.0),
        "weight_logit": 3.0,
        "edge_logit": 3.0,
        "spread": 1.0,
        "bearable": 0.5,
        "cooling": 0.5,
    }
    for field in fields(config):
        value = getattr(config, field.name)
        other = changes.get(field.name) or (value / 2 if isinstance(value, float) else value + 1)
        seen.add(replace(config, **{field.name: other}).sha256())
    assert len(seen) == len(fields(config))
    assert config.sha256() not in seen
    assert config.sha256() == SearchConfig().sha256()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("batch_size", 0),
        ("complement_every", 0),
        ("evaluate_every", 0),
        ("patience", 0),
        ("dev_prompts", 0),
        ("checkpoint_every", 0),
        ("weight_temperature", 0.0),
        ("edge_temperature", -1.0),
        ("edge_temperature", float("nan")),
        ("min_accuracy", 95.0),
        ("max_density", 0.0),
        ("noise", 1.5),
        ("spread", -1.0),
        ("bearable", 0.0),
        ("max_density", 7.0),
        ("weight_stage", 1.0),
        ("weight_stage", 0.0),
        ("weight_learning_rate", -1.0),
        ("edge_learning_rate", float("nan")),
        ("edge_learning_rate", 0.0),
        ("weight_temperature", float("inf")),
        ("completeness", -1.0),
        ("completeness", float("nan")),
        ("spread", float("nan")),
        ("weight_logit", float("nan")),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        SearchConfig(**{name: value})


@pytest.mark.parametrize("name", ["schedule", "fidelity", "ablation"])
def test_unknown_choices_are_refused(name):
    # Through a file: in Python the type checker is there first.
    with pytest.raises(ConfigError, match=f"{name} is .*, not 'other'"):
        unchecked(**{name: "other"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 1.5), ("patience", "4"), ("weight_push", 1.0), ("edge_learning_rate", "0.3")],
)
def test_values_of_another_type_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"^{name} .*, not {value!r}"):
        unchecked(**{name: value})


def unchecked(**values):
    config = SearchConfig()
    for name, value in values.items():
        object.__setattr__(config, name, value)
    config.__post_init__()


def test_sequential_search_needs_a_step_for_each_stage():
    with pytest.raises(ConfigError, match="at least 2 steps"):
        SearchConfig(schedule="sequential", steps=1)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"Unknown settings stepps; known are .*steps"):
        SearchConfig.from_dict({"stepps": 3})
    for push in ({"largest": 1e-3, "rises": 0.5}, {}, 3):
        with pytest.raises(ConfigError, match="edge_push has the settings largest, first"):
            SearchConfig.from_dict({"edge_push": push})


# -- the push -----------------------------------------------------------------------------------


def test_push_rises_and_stays():
    push = Push(largest=8.0, first=0.25, rise=0.5)
    assert [push.at(x) for x in (0.0, 0.25, 0.5, 0.75, 1.0)] == pytest.approx([2, 5, 8, 8, 8])


def test_push_rises_falls_and_stays():
    push = Push(largest=8.0, first=0.0, rise=0.25, fall=0.5, last=0.5)
    steps = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
    assert [push.at(x) for x in steps] == pytest.approx([0, 4, 8, 6, 4, 4])


def test_push_fades_towards_its_target():
    push = Push(largest=8.0, first=1.0, target=0.1)
    densities = (1.0, 0.3, 0.2, 0.12, 0.1, 0.01)
    assert [push.at(0.5, x) for x in densities] == pytest.approx([8, 8, 4, 0.8, 0.4, 0.4])


def test_learning_rates_cool_down_at_the_end():
    config = SearchConfig(cooling=0.4)
    assert [config.warmth(x) for x in (0.0, 0.6, 0.8, 1.0)] == pytest.approx([1, 1, 0.5, 0])
    assert [SearchConfig().warmth(x) for x in (0.0, 1.0)] == [1, 1]
    with pytest.raises(ConfigError, match="cooling is a share of the steps, 0 to 1"):
        SearchConfig(cooling=2.0)


def test_pushes_wait_for_the_loss():
    config = SearchConfig(bearable=0.5)
    losses = (0.0, 0.15, 0.325, 0.5, 2.0)
    assert [config.eagerness(x) for x in losses] == pytest.approx([1, 1, 0.5, 0, 0])
    assert SearchConfig().eagerness(9.0) == 1


@pytest.mark.parametrize(
    "values",
    [
        {"largest": -1.0},
        {"largest": 1.0, "rise": 0.0},
        {"largest": 1.0, "rise": 1.5},
        {"largest": 1.0, "rise": 0.8, "fall": 0.3},
        {"largest": 1.0, "fall": -0.1},
        {"largest": float("nan")},
        {"largest": float("inf")},
        {"largest": 1.0, "first": -1.0},
        {"largest": 1.0, "last": -5.0},
        {"largest": 1.0, "target": -1.0},
        {"largest": 1.0, "target": float("nan")},
    ],
)
def test_push_that_makes_no_sense_is_refused(values):
    with pytest.raises(ConfigError, match="A push needs"):
        Push(**values)


def test_a_push_may_rise_and_fall_to_the_end():
    assert Push(largest=1.0, rise=0.1, fall=0.9).at(1.0) == dgp.Push(largest=1.0).at(1.0) == 1.0


# -- settings of a method -----------------------------------------------------------------------


def test_every_method_has_its_settings():
    assert set(CONFIGS) == set(dgp.METHODS)


@pytest.mark.parametrize(
    ("method", "config", "sentence"),
    [
        ("discogp", {"steps": 2}, "of type dict; make it with SearchConfig(...), of discogp_lib"),
        ("edge_pruning", AcdcConfig(), "of type AcdcConfig; make it with SearchConfig"),
        ("acdc", SearchConfig(), "of type SearchConfig; make it with AcdcConfig"),
        ("eap", EapIgConfig(), "of type EapIgConfig; make it with EapConfig"),
        ("random", EapConfig(), "of type EapConfig; make it with RandomConfig"),
    ],
)
def test_settings_of_another_method_are_refused(method, config, sentence):
    with pytest.raises(ConfigError) as error:
        dgp.discover(masked(planted_gpt2()), planted_task(8), method, config=config)
    assert f"The config of '{method}' is {sentence}" in str(error.value)
