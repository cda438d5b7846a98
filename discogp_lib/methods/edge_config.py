"""Settings that methods without learnable masks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discogp_lib.config import Ablation, PlainConfig, check_ablation, check_count, is_number
from discogp_lib.errors import ConfigError

DEFAULT_DENSITY = 0.05
"""Share of edges or weights kept where no budget is given."""


@dataclass(frozen=True, kw_only=True)
class EdgeConfig(PlainConfig):
    """What every greedy edge method needs to know."""

    ablation: Ablation = "zero"
    """What a cut edge carries while edges are judged: nothing, or a reference value. Zero is the
    paper's setting for all methods: a sheaf has to work with nothing in the place of what was
    cut. ACDC and EAP were published with interchange."""

    edge_density: float | None = None
    """The budget: the sheaf has at least this share of the model's edges, as near as the method
    can get, after post-hoc pruning. None: 5 %."""

    prompts: int = 64
    """Training prompts that the edges are judged on, drawn by the seed."""

    def __post_init__(self) -> None:
        check_ablation(self.ablation)
        if self.edge_density is not None:
            check_share("edge_density", self.edge_density)
        check_count("prompts", self.prompts)

    @property
    def budget(self) -> float:
        """The edge density asked for."""
        return DEFAULT_DENSITY if self.edge_density is None else self.edge_density


def check_share(name: str, value: Any) -> None:
    """Raise `ConfigError` unless the value is a share."""
    if not is_number(value, 0.0, 1.0):
        raise ConfigError(f"{name} is a share, 0 to 1, not {value!r}.")
