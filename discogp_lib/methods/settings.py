"""The settings a method gets in a profile.

All gradient methods get the same search. The others get the densities that DiscoGP reached on
the same task and seed, as in the paper. `discogp@sequential` and the like are *variants*: the
method with some settings changed, kept in the run store under their own name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from discogp_lib.config import Ablation, SearchConfig
from discogp_lib.errors import ConfigError
from discogp_lib.methods import METHODS
from discogp_lib.methods.acdc import AcdcConfig
from discogp_lib.methods.controls import (
    MagnitudeConfig,
    MatchedConfig,
    RandomConfig,
    shuffled,
    untrained,
)
from discogp_lib.methods.eap import EapConfig, EapIgConfig
from discogp_lib.model import MaskedTransformer
from discogp_lib.profiles import Profile
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task

GRADIENT_METHODS = ("discogp", "weight_pruning", "edge_pruning")

VARIANTS: dict[str, dict[str, Any]] = {
    "joint": {"schedule": "joint"},
    "sequential": {"schedule": "sequential"},
    "label": {"fidelity": "label"},
    "distribution": {"fidelity": "distribution"},
    "vocabulary": {"fidelity": "vocabulary"},
    "complete": {"completeness": 0.5},
    "incomplete": {"completeness": 0.0},
    "mean": {"ablation": "mean"},
    "shuffled": {"fidelity": "gold"},
    "untrained": {"fidelity": "gold"},
}
"""Named changes of the search settings."""

SUBJECTS = ("shuffled", "untrained")
"""Variants that are controls and also change what is searched, see `subject`."""

PUSHES = (0.25, 0.5, 2.0, 4.0)
"""Factors on both pushes, variants too: `discogp@push2.0` shows what a larger lambda does."""


EDGE_METHODS = ("acdc", "eap", "eap_ig")
EDGE_VARIANTS: dict[str, Ablation] = {"mean": "mean", "interchange": "interchange"}
"""Variants of the greedy edge methods: `acdc@mean` judges and is judged under mean ablation."""


def base_method(method: str) -> str:
    """The method behind a variant."""
    name, _, variant = method.partition("@")
    known = name in METHODS and method != f"{name}@"
    if variant and name in GRADIENT_METHODS:
        known = _changes(variant, SearchConfig()) is not None
    elif variant:
        known = name in EDGE_METHODS and variant in EDGE_VARIANTS
    if not known:
        raise ConfigError(
            f"There is no method {method!r}; the methods are {', '.join(METHODS)}, variants "
            f"of the gradient methods, discogp@NAME with NAME one of {', '.join(variant_names())}, "
            f"and of {', '.join(EDGE_METHODS)}, with NAME one of {', '.join(EDGE_VARIANTS)}."
        )
    return name


def edge_ablation(method: str) -> Ablation:
    """What cut edges carry in a method or variant that chooses edges."""
    base_method(method)
    return EDGE_VARIANTS.get(method.partition("@")[2], "zero")


def variant_names(search: SearchConfig | None = None) -> tuple[str, ...]:
    """All variants, or those that change something in these settings or what is searched."""
    names = (*VARIANTS, *(f"push{factor}" for factor in PUSHES))
    if search is None:
        return names
    changes = {name: _changes(name, search) or {} for name in names}
    return tuple(
        name for name in names if name in SUBJECTS or replace(search, **changes[name]) != search
    )


def _changes(variant: str, search: SearchConfig) -> dict[str, Any] | None:
    """The settings that a variant changes, None for an unknown one."""
    if variant in VARIANTS:
        return VARIANTS[variant]
    for factor in PUSHES:
        if variant == f"push{factor}":
            pushes = {"weight_push": search.weight_push, "edge_push": search.edge_push}
            return {n: replace(p, largest=p.largest * factor) for n, p in pushes.items()}
    return None


def subject(
    method: str, model: MaskedTransformer, task: Task, seed: int
) -> tuple[MaskedTransformer, Task]:
    """What a method is run on: for the controls not the very model, or not the very task."""
    variant = method.partition("@")[2]
    if variant == "untrained":
        return untrained(model, seed), task
    return model, shuffled(task, seed) if variant == "shuffled" else task


def needs_budget(method: str) -> bool:
    """Whether the method is given DiscoGP's densities on the same task and seed."""
    return base_method(method) not in GRADIENT_METHODS


def settings_for(method: str, profile: Profile, budget: Sheaf | None) -> Any:
    """The config of a method; `budget` is DiscoGP's sheaf where the method is to match it."""
    name, variant = base_method(method), method.partition("@")[2]
    if not needs_budget(name):
        changes = _changes(variant, profile.search) if variant else None
        return replace(profile.search, **(changes or {}))
    if budget is None:
        raise ConfigError(f"The method {method!r} needs a sheaf whose size it is to match.")
    config = BUDGETED[name](budget)
    if name == "acdc":
        config = replace(config, **profile.acdc)
    return replace(config, ablation=EDGE_VARIANTS[variant]) if variant else config


BUDGETED: dict[str, Callable[[Sheaf], Any]] = {
    "acdc": lambda sheaf: AcdcConfig(edge_density=sheaf.edge_density),
    "eap": lambda sheaf: EapConfig(edge_density=sheaf.edge_density),
    "eap_ig": lambda sheaf: EapIgConfig(edge_density=sheaf.edge_density),
    "random": lambda sheaf: RandomConfig(
        edge_density=sheaf.edge_density, weight_density=sheaf.weight_density
    ),
    "random_matched": MatchedConfig.like,
    "magnitude": lambda sheaf: MagnitudeConfig(weight_density=sheaf.weight_density),
}
"""How each method is told the size it may have."""
