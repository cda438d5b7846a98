"""The settings a method gets in a profile: the same search for all gradient methods, and for the
others the densities that DiscoGP reached on the task, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from discogp_lib.config import SearchConfig

GRADIENT_METHODS = ("discogp", "weight_pruning", "edge_pruning")


def needs_budget(method: str) -> bool:
    """Whether the method is given DiscoGP's densities on the same task and seed."""
    return method not in GRADIENT_METHODS


def settings_for(method: str, search: SearchConfig, budget: Mapping[str, float] | None) -> Any:
    """The config of a method; `budget` is DiscoGP's evaluation where the method needs it."""
    if not needs_budget(method):
        return search
    raise NotImplementedError(method)
