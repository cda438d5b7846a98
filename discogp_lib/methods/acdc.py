"""ACDC: edges cut greedily from the logits back (Conmy et al., 2023).

Receivers are visited in reverse topological order, and for each its senders, the latest first.
An edge is cut if that raises KL(full model || sheaf) over the label set, mean over prompts, by
less than a threshold.

Edges are judged in chains: several masks are evaluated at once, each cutting one more edge, as if
every edge before it were cut. The verdicts hold up to the first edge that has to stay, and the
next chain begins after it. The result is that of judging one edge at a time.

In a model with tens of thousands of edges even that takes hours a threshold. There the edges of a
block may be judged together: ranked by the size of what their senders write (mean over all tokens
of the batch, its padding among them), and of the masks that
keep the 0, 1, 2, 4, ... largest of them the one is taken whose KL plus threshold x edges is least.
An edge is kept if it is worth the threshold, as before, but edges are no longer asked one by one. A
trial that would cut too many then stops before the block that falls below the budget, and is the
last: its threshold holds from the logits down to there, and that of the trial before it from there
on.

The threshold is tuned to a budget of edges in two steps. Runs from the full model at smaller and
smaller thresholds go on until one keeps enough edges. From its sheaf the threshold rises: each
trial starts from the last sheaf with enough edges and cuts further, by a smaller step whenever it
cut too many. That costs a fraction of a run per trial, and comes nearer to the budget: the size
of a run from the full model is not monotone in its threshold. With a threshold given, ACDC is one
run from the full model, as published. Trials share what they have measured (`measured_kl`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm import tqdm

from discogp_lib.checkpoint import SearchCheckpoint
from discogp_lib.config import is_positive
from discogp_lib.errors import ConfigError
from discogp_lib.graph import Group
from discogp_lib.methods.base import labelled
from discogp_lib.methods.budget import at_least, edge_sheaf, kept_edges, some_prompts
from discogp_lib.methods.edge_config import EdgeConfig
from discogp_lib.methods.measured_kl import MeasuredKL
from discogp_lib.methods.suffix import Upstream, blocks, dead_receivers
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task

FIRST_THRESHOLD, FALL = 1e-4, 10.0
"""Where the tuning begins, in nats, and the factor by which it falls until enough edges stay."""

FIRST_THRESHOLD_RANKED, FALL_RANKED = 1e-3, 10.0**0.5
"""The same for ranked edges. A run then takes the longer the more edges it keeps, and too small a
threshold costs more than another run."""

SMALLEST_THRESHOLD = 1e-6
"""Below, verdicts are about rounding errors."""

FIRST_RISE, LAST_RISE = 2.0, 1.02
"""Factors by which the threshold rises, at first and at last."""

NEAR = 0.02
"""A sheaf is near enough to the budget with this share of edges above it, or with one edge."""


@dataclass(frozen=True, kw_only=True)
class AcdcConfig(EdgeConfig):
    """Settings of ACDC: a threshold, or a budget to which the threshold is tuned."""

    prompts: int = 32
    """Training prompts that the edges are judged on, drawn by the seed."""

    ranked: bool = False
    """Judge the edges of a block together, ranked by the size of what they carry, and not one at a
    time as published. Ours, for models with many edges."""

    threshold: float | None = None
    """An edge stays if cutting it raises KL by at least this, in nats. None: tuned so that the
    sheaf has at least `edge_density`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and self.edge_density is not None:
            raise ConfigError("Give a threshold or an edge_density, not both.")
        if self.threshold is not None and not is_positive(self.threshold):
            raise ConfigError(f"threshold must be a number above 0, not {self.threshold!r}.")


@dataclass(frozen=True)
class Trial:
    """One run at one threshold."""

    threshold: float
    start: float | None
    """Threshold of the sheaf that the run started from; None for the full model."""
    edges: int
    """Kept, after post-hoc pruning; where the run was given up, an upper bound."""
    edge_density: float
    kl: float
    """On the prompts the edges were judged on."""
    complete: bool
    """Whether the run came to its end, and was not given up or stopped at the budget."""
    mask: Bool[Tensor, " edge"]

    def record(self) -> dict[str, Any]:
        """All but the mask, as plain values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "mask"}


def acdc(
    model: MaskedTransformer,
    task: Task,
    config: AcdcConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """The sheaf at the given threshold, or at the one that meets the budget."""
    config = config or AcdcConfig()
    store = None
    if checkpoint is not None:
        # What is stored are measured masks, which do not depend on threshold or budget.
        inputs = [model.checkpoint_sha256, task.sha256, config.ablation, config.prompts, seed]
        store = SearchCheckpoint(checkpoint, ["acdc", *inputs])
    search = AcdcSearch(model, task, config, seed, store, progress)
    if config.threshold is not None:
        return search.sheaf(search.run(config.threshold))
    return search.sheaf(search.tune(config.budget))


class AcdcSearch:
    """Runs at several thresholds over the same prompts, sharing what they measure."""

    def __init__(
        self,
        model: MaskedTransformer,
        task: Task,
        config: AcdcConfig,
        seed: int = 0,
        store: SearchCheckpoint | None = None,
        progress: bool = False,
    ) -> None:
        self.model, self.task, self.config, self.seed = model, task, config, seed
        self.progress = progress
        split = some_prompts(task, config.prompts, seed)
        self.kls = MeasuredKL(model, task, split, config.ablation, store)
        self.trials: list[Trial] = []

    # -- one threshold ------------------------------------------------------------------------

    def run(self, threshold: float, start: Trial | None = None, least: int = 0) -> Trial:
        """Decide on every edge, of the full model or of an earlier trial's sheaf.

        Given up when fewer than `least` edges are left; ranked, stopped before that.
        """
        graph = self.model.graph
        mask = torch.ones(graph.n_edges, dtype=torch.bool) if start is None else start.mask.clone()
        kl = 0.0 if start is None else start.kl
        outputs = self.kls.outputs if start is None else self.kls.outputs_under(mask)
        complete = True
        name = f"{self.task.short_name} acdc {threshold:.2g}"
        with tqdm(total=int(mask.sum()), desc=name, disable=not self.progress) as bar:
            for block in blocks(graph):
                edges, before = int(mask[block.start : block.stop].sum()), (mask.clone(), kl)
                kl = self._decide(block, mask, kl, threshold, outputs)
                bar.update(edges)
                bar.set_postfix_str(f"density {int(mask.sum()) / graph.n_edges:.2%}")
                if least and self._kept(mask).sum() < least:
                    complete = False
                    if self.config.ranked:
                        mask, kl = before
                    break
        mask = self._kept(mask)
        edges = int(mask.sum())
        origin = None if start is None else start.threshold
        trial = Trial(threshold, origin, edges, edges / graph.n_edges, kl, complete, mask)
        self.trials.append(trial)
        self.kls.save()
        return trial

    def _kept(self, mask: Bool[Tensor, " edge"]) -> Bool[Tensor, " edge"]:
        """The mask after post-hoc pruning."""
        return kept_edges(self.model.layout, mask, self.config.ablation)

    def _decide(
        self,
        block: Group,
        mask: Bool[Tensor, " edge"],
        kl: float,
        threshold: float,
        outputs: Float[Tensor, "sender token d_model"],
    ) -> float:
        """Cut edges into the receivers of a block, in place; returns the KL of what is left."""
        graph = self.model.graph
        dead = dead_receivers(graph, block, mask, zero=self.config.ablation == "zero")
        block.matrix(mask)[dead] = False
        edges = (block.start + mask[block.start : block.stop].nonzero().flatten()).flip(0).tolist()
        if not edges:
            return kl
        upstream = self.kls.upstream(block, mask, outputs)
        if self.config.ranked:
            edges = _largest_first(edges, block, outputs)
            return self._judge_ranked(upstream, mask, kl, threshold, edges)
        return self._judge_chains(upstream, mask, kl, threshold, edges)

    def _judge_chains(
        self,
        upstream: Upstream,
        mask: Bool[Tensor, " edge"],
        kl: float,
        threshold: float,
        edges: list[int],
    ) -> float:
        """Judge one edge after the other, several masks at once."""
        done, size = 0, 2
        while done < len(edges):
            chain = edges[done : done + size]
            masks = mask.repeat(len(chain), 1)
            for i, edge in enumerate(chain):
                masks[i:, edge] = False
            values = self.kls.measure(upstream, masks)
            for value in values:
                edge, done = edges[done], done + 1
                if value - kl >= threshold:
                    size = max(1, size // 2)
                    break
                mask[edge], kl = False, value
            else:
                size = min(2 * size, self.kls.most_masks)
        return kl

    def _judge_ranked(
        self,
        upstream: Upstream,
        mask: Bool[Tensor, " edge"],
        kl: float,
        threshold: float,
        edges: list[int],
    ) -> float:
        """Keep as many of the first edges as make KL + threshold x edges the least.

        Every edge kept is then worth about the threshold, as if they had been judged one by one.
        """
        best, best_kl, best_total = mask, kl, kl + threshold * len(edges)
        kept = 0
        while threshold * kept < best_total and kept < len(edges):
            without = mask.clone()
            without[edges[kept:]] = False
            (value,) = self.kls.measure(upstream, without.unsqueeze(0))
            if value + threshold * kept < best_total:
                best, best_kl, best_total = without, value, value + threshold * kept
            kept = max(1, 2 * kept)
        mask.copy_(best)
        return best_kl

    # -- tuning the threshold -----------------------------------------------------------------

    def tune(self, density: float, near: float = NEAR) -> Trial:
        """A trial with at least the density, and at most a share `near` more.

        If not even the smallest threshold leaves as many edges, the trial with the most.
        """
        target = at_least(density, self.model.graph.n_edges)
        best, rise = self._enough(target), FIRST_RISE
        if best is None:
            return max(self.trials, key=lambda t: t.edges)
        while best.edges > max(target + 1, (1 + near) * target) and rise > LAST_RISE:
            trial = self.run(best.threshold * rise, start=best, least=target)
            if trial.edges < target:
                rise = math.sqrt(rise)
                continue
            best = trial
            if not trial.complete:
                break
        return best

    def _enough(self, target: int) -> Trial | None:
        """The smallest sheaf so far with at least so many edges, if need be from a new run."""
        while True:
            enough = [t for t in self.trials if t.complete and t.edges >= target]
            if enough:
                return min(enough, key=lambda t: t.edges)
            tried = [t.threshold for t in self.trials if t.start is None]
            first, fall = FIRST_THRESHOLD, FALL
            if self.config.ranked:
                first, fall = FIRST_THRESHOLD_RANKED, FALL_RANKED
            threshold = min(tried) / fall if tried else first
            if threshold < 0.9 * SMALLEST_THRESHOLD:
                return None
            self.run(threshold)

    def sheaf(self, trial: Trial) -> Sheaf:
        """The sheaf of a trial."""
        enough = self.config.threshold is not None or trial.edge_density >= self.config.budget
        return labelled(
            edge_sheaf(self.model, trial.mask, self.config.ablation),
            "acdc",
            self.task,
            self.seed,
            self.config.as_dict(),
            status="reached" if enough else "no threshold leaves as many edges",
            threshold=trial.threshold,
            kl=trial.kl,
            trials=[t.record() for t in self.trials],
            evaluated=len(self.kls.measured),
        )


def _largest_first(
    edges: list[int], block: Group, outputs: Float[Tensor, "sender token d_model"]
) -> list[int]:
    """The edges by the size of what their senders write, mean over tokens."""
    sizes = outputs[: block.n_senders].norm(dim=-1).mean(1).tolist()
    return sorted(edges, key=lambda edge: -sizes[(edge - block.start) % block.n_senders])
