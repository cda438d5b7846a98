"""Accuracy and KL against edge density: how a method trades one for the other.

EAP and EAP-IG score edges once, and a sheaf of any size is the best of them. The gradient
methods do too: a search ends with a logit for every edge. ACDC has no scores; one search tunes its
threshold to the largest size first, and goes on from there to the next (see `methods.acdc`).

A curve is kept in the run store beside the run of its method, and not computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from discogp_lib.ablation import reference_for
from discogp_lib.config import Ablation, SearchConfig
from discogp_lib.derived import derived
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import Reference, evaluate
from discogp_lib.layout import unflatten
from discogp_lib.learner import Kind, Learner
from discogp_lib.methods.acdc import AcdcConfig, AcdcSearch
from discogp_lib.methods.budget import at_least, by_score
from discogp_lib.methods.eap import EapConfig, EapIgConfig, eap_ig_scores, eap_scores
from discogp_lib.methods.settings import EDGE_METHODS, edge_ablation
from discogp_lib.model import MaskedTransformer
from discogp_lib.profiles import get_profile
from discogp_lib.runs import Run, cached_model, cached_task
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split, Task

SIZES = (0.005, 0.008, 0.014, 0.023, 0.039, 0.065, 0.108, 0.18, 0.3, 0.5)
"""Ten edge densities from 0.5 to 50 %, each 1.67 times the one before."""

CURVE_METHODS = ("discogp", "edge_pruning", "acdc", "eap", "eap_ig", "random")
"""Methods that choose edges; `random` is edges at random with all weights kept."""

ACDC_NEAR = 0.2
"""ACDC's sheaves may be larger than asked by this share: a curve shows each where it lies."""

ACDC_LARGEST = 0.11
"""... and are of at most this density: each larger one takes as long as all smaller together."""

CURVE_PROMPTS = 200
"""Test prompts that a curve is of, the first so many: a curve is many evaluations."""

CURVE_VERSION = 3

BySize = Callable[[float], Sheaf]


def density_curve(
    model: MaskedTransformer,
    split: Split,
    at: BySize | Float[Tensor, " edge"],
    sizes: Sequence[float] = SIZES,
    *,
    ablation: Ablation = "zero",
    reference: Reference | None = None,
) -> pd.DataFrame:
    """One row per density asked for: what the sheaf of that size does on a split.

    at: gives the sheaf of a density; or scores of the edges, of which the largest are taken.
    ablation, reference: what the sheaves were found under, and its values (`reference_for`).
    """
    rows = []
    for size in sizes:
        sheaf = at(size) if callable(at) else by_score(model, at, size, ablation)
        found = evaluate(model, sheaf, split, reference=reference)
        rows.append({"asked_density": size, "edges": sheaf.kept_edges, **found.as_dict()})
    return pd.DataFrame(rows)


def stored_curve(run: Run, sizes: Sequence[float] = SIZES, *, device: str = "cpu") -> pd.DataFrame:
    """The curve of a run's method on its task and seed: from the store, else computed now."""
    profile = get_profile(run.profile)
    model = cached_model(profile.model, device)
    task = cached_task(run.task, profile.model, run.seed, device)
    inputs = {
        "version": CURVE_VERSION,
        "checkpoint_sha256": model.checkpoint_sha256,
        "task_sha256": task.sha256,
        "method": run.method,
        "seed": run.seed,
        "sizes": list(sizes),
        "prompts": CURVE_PROMPTS,
        "search": profile.search.as_dict(),
        "acdc": dict(profile.acdc),
    }
    return derived(
        run,
        "curve",
        inputs,
        lambda: curve_of(
            run.method, model, task, profile.search, run.seed, sizes, acdc=profile.acdc
        ),
    )


def curve_of(
    method: str,
    model: MaskedTransformer,
    task: Task,
    search: SearchConfig,
    seed: int = 0,
    sizes: Sequence[float] = SIZES,
    *,
    acdc: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """The curve of a method on test prompts; gradient methods get the given search.

    acdc: settings of ACDC other than its own.
    """
    name = method.partition("@")[0]
    if name not in CURVE_METHODS or (name != method and name not in EDGE_METHODS):
        raise ConfigError(f"There are no curves of {method!r}, only of {', '.join(CURVE_METHODS)}.")
    ablation = edge_ablation(method)
    reference = reference_for(ablation, model, task)
    at: BySize | Float[Tensor, " edge"]
    match name:
        case "acdc":
            sizes = [size for size in sizes if size <= ACDC_LARGEST]
            config = AcdcConfig(ablation=ablation, **(acdc or {}))
            at = _acdc(model, task, config, seed, sizes)
        case "eap":
            at = eap_scores(model, task, EapConfig(ablation=ablation), seed)
        case "eap_ig":
            at = eap_ig_scores(model, task, EapIgConfig(ablation=ablation), seed)
        case "edge_pruning":
            logits, _ = final_logits(model, task, search, seed, ("edges",))
            at = logits - logits.min()
        case "discogp":
            at = ranked_with_weights(
                model, *final_logits(model, task, search, seed, ("weights", "edges"))
            )
        case _:
            at = torch.rand(model.graph.n_edges, generator=torch.Generator().manual_seed(seed))
    split = task.test.first(CURVE_PROMPTS)
    return density_curve(model, split, at, sizes, ablation=ablation, reference=reference)


def _acdc(
    model: MaskedTransformer, task: Task, config: AcdcConfig, seed: int, sizes: Sequence[float]
) -> BySize:
    """ACDC's sheaves, tuned from the largest size down in one search."""
    search = AcdcSearch(model, task, config, seed)
    found = {
        size: search.sheaf(search.tune(size, near=ACDC_NEAR))
        for size in sorted(sizes, reverse=True)
    }
    return found.__getitem__


def final_logits(
    model: MaskedTransformer,
    task: Task,
    config: SearchConfig,
    seed: int,
    kinds: tuple[Kind, ...],
) -> tuple[Float[Tensor, " edge"], Bool[Tensor, " weight"]]:
    """Where a search of all its steps, both masks at once, leaves the edges and the weights."""
    learner = Learner(model, task, config, seed, kinds, config.steps, Sheaf.full(model))
    learner.begin()
    for step in range(config.steps):
        learner.step(step)
    weights = torch.ones(model.n_weights, dtype=torch.bool)
    if "weights" in kinds:
        weights = learner.masks["weights"].hard().cpu()
    return learner.masks["edges"].logits.cpu(), weights


def ranked_with_weights(
    model: MaskedTransformer, logits: Float[Tensor, " edge"], weights: Bool[Tensor, " weight"]
) -> BySize:
    """Sheaves of the edges of largest logit with a fixed set of weights, after pruning.

    As few edges as give the density; where the weights leave too few alive, all of those.
    """
    order = logits.sort(descending=True, stable=True).indices
    masks = unflatten(weights, model.layout)

    def take(n: int) -> Sheaf:
        edges = torch.zeros(len(order), dtype=torch.bool)
        edges[order[:n]] = True
        return replace(Sheaf.full(model), edge_mask=edges, weight_masks=masks).pruned()

    def at(size: float) -> Sheaf:
        target = at_least(size, len(order))
        low, high = target, len(order)
        while low < high:
            middle = (low + high) // 2
            if take(middle).kept_edges >= target:
                high = middle
            else:
                low = middle + 1
        return take(low)

    return at
