"""Settings of a search, each with what it does and where its default comes from."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from discogp_lib.errors import ConfigError

Fidelity = Literal["label", "distribution", "vocabulary", "gold"]
Schedule = Literal["joint", "sequential"]
Ablation = Literal["zero", "mean", "interchange"]
C = TypeVar("C", bound="PlainConfig")

FADED, FULL = 0.05, 3.0
"""Share of a push that is left at its target density, and at how many times it none is missing."""

EASY = 0.3
"""Share of the bearable loss up to which a push does not wait at all."""


@dataclass(frozen=True, kw_only=True)
class PlainConfig:
    """A frozen set of settings that can be written down, read again and identified."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for records."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], values: dict[str, Any]) -> C:
        """The reverse of `as_dict`; unknown names are an error."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigError(
                f"Unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}."
            )
        return cls(**values)

    def sha256(self) -> str:
        """Identity of the settings."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()


def is_number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """Whether it is a finite number from `least` to `most`; NaN is not."""
    return isinstance(value, int | float) and math.isfinite(value) and least <= value <= most


def is_positive(value: Any, most: float = math.inf) -> bool:
    """Whether it is a finite number above 0, up to `most`."""
    return is_number(value, 0.0, most) and value > 0


def check_count(name: str, value: Any) -> None:
    """Raise `ConfigError` unless the value is a whole number from 1."""
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number from 1, not {value!r}.")


def check_ablation(value: Any) -> None:
    """Raise `ConfigError` unless there is such an ablation."""
    if value not in get_args(Ablation):
        raise ConfigError(f"ablation is 'zero', 'mean' or 'interchange', not {value!r}.")


@dataclass(frozen=True, kw_only=True)
class Push:
    """The sparsity push on one kind of mask, lambda_s, over the steps of a stage.

    It rises linearly, may fall linearly after that, and then stays.
    """

    largest: float
    """Largest lambda_s divided by the number of masks, so that one value serves every model."""

    first: float = 5e-4
    """Share of it at the first step."""

    rise: float = 0.6
    """Share of the steps over which it rises."""

    fall: float = 0.0
    """Share of the steps over which it falls afterwards."""

    last: float = 1.0
    """Share of it where it then stays."""

    target: float = 0.0
    """Density towards which it fades: in full at three times that density and above, and at it
    only a twentieth, so that the last steps mend what the pruning broke; 0 never fades."""

    def __post_init__(self) -> None:
        shares = (self.first, self.rise, self.fall, self.last, self.target)
        if (
            not is_number(self.largest, 0.0)
            or not all(is_number(share, 0.0, 1.0) for share in shares)
            or self.rise == 0
            or self.rise + self.fall > 1
        ):
            raise ConfigError(
                "A push needs largest >= 0, first, last and target as shares, 0 to 1, and rise "
                "(above 0) and fall as shares of the steps that add up to at most 1; this is "
                f"{self}."
            )

    def at(self, done: float, density: float = 1.0) -> float:
        """The push when a share `done` of the steps is done and a share `density` is kept."""
        if done < self.rise:
            share = self.first + (1 - self.first) * done / self.rise
        elif done < self.rise + self.fall:
            share = 1 + (self.last - 1) * (done - self.rise) / self.fall
        else:
            share = self.last if self.fall else 1.0
        if self.target:
            share *= min(max((density / self.target - 1) / (FULL - 1), FADED), 1.0)
        return self.largest * share


@dataclass(frozen=True, kw_only=True)
class SearchConfig(PlainConfig):
    """How to search for a sheaf with learnable masks.

    "Authors" below is the value in the authors' released code; "ours" a choice of this project;
    "tuned" one that was picked on development prompts.
    """

    schedule: Schedule = "joint"
    """`joint`: both masks in one objective, the paper's equation. `sequential`: weights first,
    then edges on the frozen sparse weights, as the authors' code does."""

    fidelity: Fidelity = "label"
    """What the sheaf should reproduce. `label`: the full model's answer (the paper's loss);
    `distribution`: its distribution over the label set; `vocabulary`: over all tokens; `gold`: the
    right answers, whatever the full model says, for controls whose full model knows nothing."""

    ablation: Ablation = "zero"
    """What a cut edge carries: nothing (the paper), or a reference value (`ablation`)."""

    completeness: float = 0.5
    """Weight of the completeness loss, lambda_c, at the steps that compute it; 0 leaves it out.
    Tuned; the authors use 1 for weights and 0 or 1 for edges, at every step."""

    complement_every: int = 2
    """Compute the completeness loss every so many steps. Ours: it doubles the cost of a step."""

    steps: int = 100
    """Steps of the search, of both stages together when sequential. Tuned; the authors take
    about 8,000."""

    weight_stage: float = 0.5
    """Share of the steps that the weights get when sequential. Ours; the authors' is 5/6."""

    batch_size: int = 16
    """Prompts per step. Tuned; the authors use 32 or 64."""

    weight_push: Push = Push(largest=5e-4)
    """Push on the weight masks. Tuned; the authors' 1,000 for GPT-2 small is 1.2e-5 a mask."""

    edge_push: Push = Push(largest=1.2e-2)
    """Push on the edge masks. Tuned; the authors' 100 for GPT-2 small is 3.1e-3 a mask."""

    weight_temperature: float = 1.0
    """Temperature of the weight masks. Tuned: the authors' 0.01 loses IOI on small models."""

    edge_temperature: float = 1.0
    """Temperature of the edge masks. Authors."""

    weight_learning_rate: float = 0.3
    """Adam's step on the weight logits. Tuned; the authors use 0.1 and many more steps."""

    edge_learning_rate: float = 0.3
    """Adam's step on the edge logits. Tuned; likewise."""

    cooling: float = 0.0
    """Share of the steps, the last ones, over which both learning rates fall linearly to zero.
    Ours: on a large model masks flip to and fro until the end otherwise."""

    noise: float = 1.0
    """Share of the noise that masks are drawn with. Ours: in a deep model a few per cent of masks
    that are off by chance are enough to lose the task, and the search learns from lost prompts."""

    weight_logit: float | None = None
    """Where the weight logits start; None finds the smallest start that keeps the task in a
    sampled sheaf of this model (deep models need more). Authors: 1."""

    edge_logit: float | None = None
    """Where the edge logits start, likewise. Authors: 1."""

    spread: float = 0.0
    """How far above that the logits are spread at the start: exponentially, with this mean,
    in the order of what each mask matters to the full model (`Learner.salience`). 0: all are
    equal, as the authors'. Ours: with little noise equal logits would all cross zero at once;
    spread out the masks go a few at a time, idle ones first, and the rest can make up for them."""

    bearable: float | None = None
    """Fidelity loss at which the pushes wait until it is smaller again; below it they are in part
    what they would be. None never waits. Ours: a sheaf that has lost the task seldom finds it
    again while pruning goes on."""

    min_accuracy: float = 0.95
    """The sheaf is the sparsest one seen whose accuracy on dev is at least this share of the full
    model's (of all prompts, with fidelity `gold`). Ours: the paper does not say how the reported
    sheaf was chosen."""

    max_complement: float | None = 0.08
    """... and whose complement is, class-balanced on dev, at most this far above chance; None
    does not ask. Ours."""

    max_density: float = 1.0
    """... and which keeps at most this share of what is searched, of the weights and of the edges
    alike. If none does all of this, the most accurate of those that are sparse enough is taken;
    1 takes the most accurate of all. Ours."""

    evaluate_every: int = 10
    """Steps between evaluations on dev. Evaluating never changes what the search sees."""

    patience: int = 4
    """Stop after so many evaluations without a better sheaf than one that meets the conditions,
    once no push rises any more."""

    dev_prompts: int = 100
    """At most so many prompts of dev are used for the choice."""

    checkpoint_every: int = 50
    """Steps between checkpoints from which an interrupted search goes on."""

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_sizes()
        self._check_shares()
        if self.schedule == "sequential" and self.steps < 2:
            raise ConfigError("A sequential search needs at least 2 steps, one for each stage.")

    def _check_sizes(self) -> None:
        counts = ("steps", "batch_size", "complement_every", "evaluate_every", "patience")
        for name in (*counts, "dev_prompts", "checkpoint_every"):
            check_count(name, getattr(self, name))
        for kind in ("weight", "edge"):
            for name in (f"{kind}_temperature", f"{kind}_learning_rate"):
                if not is_positive(value := getattr(self, name)):
                    raise ConfigError(f"{name} must be a number above 0, not {value!r}.")
            logit, push = getattr(self, f"{kind}_logit"), getattr(self, f"{kind}_push")
            if logit is not None and not is_number(logit):
                raise ConfigError(f"{kind}_logit is a number, or None, not {logit!r}.")
            if not isinstance(push, Push):
                raise ConfigError(f"{kind}_push is a Push(largest=...), not {push!r}.")
        for name in ("completeness", "spread"):
            if not is_number(value := getattr(self, name), 0.0):
                raise ConfigError(f"{name} must be a number of at least 0, not {value!r}.")
        if self.bearable is not None and not is_positive(self.bearable):
            raise ConfigError(f"bearable is a loss above 0, or None, not {self.bearable!r}.")

    def _check_shares(self) -> None:
        for name, whole in (("cooling", "the steps"), ("noise", "the noise")):
            if not is_number(share := getattr(self, name), 0.0, 1.0):
                raise ConfigError(f"{name} is a share of {whole}, 0 to 1, not {share!r}.")
        if not is_number(self.min_accuracy, 0.0, 1.0):
            raise ConfigError(f"min_accuracy is a share, 0 to 1, not {self.min_accuracy!r}.")
        if not is_positive(self.max_density, 1.0):
            raise ConfigError(f"max_density is a share, above 0 up to 1, not {self.max_density!r}.")
        if not (is_positive(self.weight_stage) and self.weight_stage < 1):
            raise ConfigError(
                f"weight_stage is a share between 0 and 1, not {self.weight_stage!r}."
            )

    def _check_choices(self) -> None:
        if self.schedule not in ("joint", "sequential"):
            raise ConfigError(f"schedule is 'joint' or 'sequential', not {self.schedule!r}.")
        if self.fidelity not in get_args(Fidelity):
            raise ConfigError(
                f"fidelity is one of {', '.join(get_args(Fidelity))}, not {self.fidelity!r}."
            )
        check_ablation(self.ablation)

    def warmth(self, done: float) -> float:
        """Share of the learning rates that is left when a share `done` of the steps is done."""
        return min(1.0, (1 - done) / self.cooling) if self.cooling else 1.0

    def eagerness(self, loss: float) -> float:
        """Share of the pushes that a running mean of the fidelity loss allows."""
        if self.bearable is None:
            return 1.0
        return min(max((1 - loss / self.bearable) / (1 - EASY), 0.0), 1.0)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SearchConfig:
        """The reverse of `as_dict`; unknown names are an error."""
        pushes = {}
        for name in {"weight_push", "edge_push"} & set(values):
            try:
                pushes[name] = Push(**values[name])
            except TypeError:
                raise ConfigError(
                    f"{name} has the settings {', '.join(f.name for f in fields(Push))}, "
                    f"not {values[name]!r}."
                ) from None
        return super().from_dict({**values, **pushes})
