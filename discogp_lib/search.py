"""The search loop: from a model and a task to a sheaf.

A search has one stage (both masks together, or only one kind) or two (weights, then edges on the
frozen sparse weights). Everything random in it is a function of (seed, step), so a search that
is killed and resumed from its checkpoint ends in the same masks, bit for bit, and looking at
the development prompts more or less often changes nothing but which sheaves are seen. (On a CPU,
with as many threads. A GPU may add up its sums in another order each time.)
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from discogp_lib.ablation import reference_for
from discogp_lib.checkpoint import SearchCheckpoint
from discogp_lib.config import SearchConfig
from discogp_lib.evaluate import (
    Reference,
    balanced,
    final_states,
    is_right,
    label_logits,
    project_labels,
    share_of,
)
from discogp_lib.layout import unflatten
from discogp_lib.learner import Kind, Learner
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task

PASSED, FAILED, LARGE = 0.0, 1.0, 2.0
"""First part of a rank: a sheaf that meets the config's conditions is before any that does not,
and one that is too large after all others."""

STALE = "nothing better was found"

ROUNDING = 1e-9
"""Shares of prompts are compared up to this: 95 % of 40 is 38, whatever floats say."""


@dataclass(frozen=True)
class SearchResult:
    """The chosen sheaf, and how the search went."""

    sheaf: Sheaf
    """After post-hoc pruning."""
    status: str
    """"reached", or what went wrong in a few words."""
    curve: list[dict[str, float]]
    """One row per evaluation: step, losses, dev accuracy, densities."""
    steps: int
    """Steps taken."""
    raw_weight_density: float
    """Density of the chosen masks before post-hoc pruning."""
    raw_edge_density: float
    start: dict[str, float]
    """Where the logits of each kind of mask started."""


@dataclass
class _State:
    """All of a stage that changes, but for the masks."""

    start: dict[str, float]
    """Where the logits of each kind started."""
    step: int = 0
    curve: list[dict[str, float]] = field(default_factory=list)
    rank: list[float] = field(default_factory=lambda: [math.inf])
    """How good the best sheaf so far is, by the rule of the config; smaller is better."""
    raw: list[float] = field(default_factory=lambda: [1.0, 1.0])
    """Its weight and edge density before post-hoc pruning."""
    stale: int = 0
    """Evaluations since then."""
    losses: dict[str, float] = field(default_factory=dict)
    """Each loss when it was last computed; the complement's is not computed at every step."""
    running: float = 0.0
    """Running mean of the fidelity loss."""
    status: str = ""
    """Why the stage ended before its last step."""


def search(
    model: MaskedTransformer,
    task: Task,
    config: SearchConfig,
    seed: int = 0,
    *,
    kinds: tuple[Kind, ...] = ("weights", "edges"),
    checkpoint: Path | None = None,
    progress: bool = True,
) -> SearchResult:
    """Search for a sheaf; goes on from `checkpoint` if a search of the same inputs left one."""
    plan: list[tuple[tuple[Kind, ...], int]] = [(kinds, config.steps)]
    if config.schedule == "sequential" and len(kinds) == 2:
        first = min(max(1, round(config.weight_stage * config.steps)), config.steps - 1)
        plan = [(("weights",), first), (("edges",), config.steps - first)]
    reference = reference_for(config.ablation, model, task)
    result: SearchResult | None = None
    for number, (stage_kinds, steps) in enumerate(plan):
        store = None
        if checkpoint is not None:
            inputs = [model.checkpoint_sha256, task.sha256, config.sha256(), seed, kinds]
            path = checkpoint.with_name(f"{checkpoint.name}.{number}")
            store = SearchCheckpoint(path, inputs)
        base = Sheaf.full(model) if result is None else result.sheaf
        stage = Stage(model, task, config, seed, stage_kinds, steps, base, reference)
        later = stage.run(store, progress)
        result = later if result is None else _join(result, later)
    if result is None:
        raise ValueError("a search has at least one stage")
    return result


def _join(first: SearchResult, last: SearchResult) -> SearchResult:
    """One result of two stages, weights and then edges."""
    later = [{**row, "step": row["step"] + first.steps} for row in last.curve]
    return replace(
        last,
        curve=first.curve + later,
        steps=first.steps + last.steps,
        status=last.status if first.status == "reached" else f"weights: {first.status}",
        raw_weight_density=first.raw_weight_density,
        start={**first.start, **last.start},
    )


class Stage(Learner):
    """A search: learns, looks at dev prompts now and then, and keeps the best sheaf seen."""

    def __init__(
        self,
        model: MaskedTransformer,
        task: Task,
        config: SearchConfig,
        seed: int,
        kinds: tuple[Kind, ...],
        steps: int,
        base: Sheaf,
        reference: Reference | None = None,
    ) -> None:
        super().__init__(model, task, config, seed, kinds, steps, base, reference)
        self.dev = task.dev.first(config.dev_prompts)
        dev_logits = label_logits(model, self.dev)
        full_accuracy = share_of(is_right(dev_logits, self.dev.targets))
        self.attainable = 1.0 if config.fidelity == "gold" else full_accuracy
        self.chance = 1 / self.dev.labels.shape[1]

    # -- the loop ---------------------------------------------------------------------------

    def run(self, store: SearchCheckpoint | None = None, progress: bool = True) -> SearchResult:
        """Search to the end, from the checkpoint if there is one of this stage."""
        self.best: Sheaf | None = None
        state = self._resume(store) or _State(self.begin())
        bar = tqdm(
            total=self.steps,
            initial=state.step,
            desc=f"{self.task.short_name} {'+'.join(self.kinds)}",
            disable=not progress,
            mininterval=1.0,
        )
        with bar:
            while not state.status and state.step < self.steps:
                state.losses.update(self.step(state.step))
                state.running = self.running
                state.step += 1
                bar.update()
                if not all(map(math.isfinite, state.losses.values())):
                    state.status = f"the loss was not finite at step {state.step}"
                elif state.step % self.config.evaluate_every == 0 or state.step == self.steps:
                    self._look(state)
                    bar.set_postfix_str(_summary(state.curve[-1]))
                if store is not None and state.step % self.config.checkpoint_every == 0:
                    self._save(store, state)
        if store is not None:
            self._save(store, state)
        return self._result(state)

    def _save(self, store: SearchCheckpoint, state: _State) -> None:
        """Write everything that the rest of the stage depends on."""
        tensors = {
            f"{kind}.{name}": tensor
            for kind, masks in self.masks.items()
            for name, tensor in masks.state().items()
        }
        if self.best is not None:
            tensors["best.edges"] = self.best.edge_mask
            tensors["best.weights"] = self.best.flat_weight_mask
        store.save(tensors, asdict(state))

    def _resume(self, store: SearchCheckpoint | None) -> _State | None:
        """The state at the last checkpoint of this stage."""
        saved = None if store is None else store.load()
        if saved is None:
            return None
        state = _State(**saved.state)
        self.running = state.running
        self.masks = {kind: self._fresh_masks(kind, 0.0) for kind in self.kinds}
        for kind, masks in self.masks.items():
            for name, tensor in masks.state().items():
                tensor.copy_(saved.tensors[f"{kind}.{name}"])
        if "best.edges" in saved.tensors:
            self.best = replace(
                self.base,
                edge_mask=saved.tensors["best.edges"],
                weight_masks=unflatten(saved.tensors["best.weights"], self.model.layout),
            )
        return state

    # -- looking, choosing ------------------------------------------------------------------

    def _pruned(self, raw: Sheaf) -> Sheaf:
        """Post-hoc pruning, where it leaves the logits alone: not with reference values.

        A kind of mask that is whole because nobody searches it stays whole: pruned, it would be
        reversed in the complement, and the complement would be no model at all.
        """
        if self.reference is not None:
            return raw
        pruned = raw.pruned()
        if "edges" not in self.kinds and raw.keeps_all_edges:
            pruned = replace(pruned, edge_mask=raw.edge_mask)
        if "weights" not in self.kinds and raw.keeps_all_weights:
            pruned = replace(pruned, weight_masks=raw.weight_masks)
        return pruned

    def _look(self, state: _State) -> None:
        """Evaluate the current sheaf on dev, and keep it if it is the best so far."""
        raw = self.sheaf()
        sheaf = self._pruned(raw)
        accuracy, _ = self._dev_accuracy(sheaf)
        rest = self._dev_accuracy(sheaf.complement())[1] if self.config.completeness else 0.0
        row = {
            "step": float(state.step),
            **state.losses,
            "dev_accuracy": accuracy,
            **({"dev_complement": rest} if self.config.completeness else {}),
            "weight_density": sheaf.weight_density,
            "edge_density": sheaf.edge_density,
            **{f"{kind}_push": self._push(kind, state.step) for kind in self.kinds},
        }
        state.curve.append(row)
        rank = self._rank(sheaf, accuracy, rest)
        if rank < state.rank:
            state.rank, self.best, state.stale = rank, sheaf, 0
            state.raw = [raw.weight_density, raw.edge_density]
        else:
            state.stale += 1
        if not sheaf.kept_edges or not sheaf.kept_weights:
            state.status = f"the sheaf was empty at step {state.step}"
        elif self._is_over(state):
            state.status = STALE

    def _rank(self, sheaf: Sheaf, accuracy: float, rest: float) -> list[float]:
        """How good a sheaf is by the rule of the config; smaller is better."""
        densities = {"weights": sheaf.weight_density, "edges": sheaf.edge_density}
        size = sum(math.log(max(density, 1e-9)) for density in densities.values())
        if max(densities[kind] for kind in self.kinds) > self.config.max_density:
            return [LARGE, size]
        passed = accuracy >= self.config.min_accuracy * self.attainable - ROUNDING
        if self.config.completeness and self.config.max_complement is not None:
            passed &= rest <= self.chance + self.config.max_complement
        return [PASSED, size] if passed else [FAILED, -accuracy, size]

    def _is_over(self, state: _State) -> bool:
        """Whether a sheaf that passes has long been the best, and no push rises any more."""
        risen = self.steps * max(self._schedule(kind).rise for kind in self.kinds)
        found = state.rank[0] == PASSED and state.stale >= self.config.patience
        return found and state.step >= risen

    def _dev_accuracy(self, sheaf: Sheaf) -> tuple[float, float]:
        """Accuracy on dev, plain and class-balanced."""
        states = final_states(self.model, self.dev, sheaf, reference=self.reference)
        right = is_right(project_labels(self.model, self.dev, states), self.dev.targets)
        return share_of(right), balanced(right, self.dev.groups)

    def _result(self, state: _State) -> SearchResult:
        reached = state.rank[0] == PASSED
        failure = state.status if state.status not in ("", STALE) else "target not reached"
        if self.best is None:  # it failed before the first look
            raw = self.sheaf()
            self.best, state.raw = self._pruned(raw), [raw.weight_density, raw.edge_density]
        return SearchResult(
            sheaf=self.best,
            status="reached" if reached else failure,
            curve=state.curve,
            steps=state.step,
            raw_weight_density=state.raw[0],
            raw_edge_density=state.raw[1],
            start=state.start,
        )


def _summary(row: dict[str, Any]) -> str:
    return (
        f"fidelity {row['fidelity']:.3f} dev {row['dev_accuracy']:.1%} "
        f"weights {row['weight_density']:.2%} edges {row['edge_density']:.2%}"
    )
