"""Controls: what a sheaf's numbers are worth.

Three methods choose masks without looking at the task: at random with given densities, at random
with the counts of a sheaf in every place, and by the size of weights. Two helpers take away from
a search what it should depend on: the right labels (`shuffled`) and the trained model
(`untrained`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from discogp_lib.config import PlainConfig
from discogp_lib.errors import ConfigError
from discogp_lib.layout import Layout, unflatten
from discogp_lib.methods.base import labelled
from discogp_lib.methods.edge_config import DEFAULT_DENSITY, check_share
from discogp_lib.model import MaskedTransformer
from discogp_lib.norm import Norm
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split, Task, identity

INITIAL_STD = 0.02
"""Standard deviation of untrained weights, as GPT-2 and Llama have it."""


@dataclass(frozen=True, kw_only=True)
class RandomConfig(PlainConfig):
    """Settings of random masks."""

    edge_density: float = DEFAULT_DENSITY
    """Share of edges kept; 1 keeps all."""

    weight_density: float = DEFAULT_DENSITY
    """Share of weights kept; 1 keeps all."""

    def __post_init__(self) -> None:
        check_share("edge_density", self.edge_density)
        check_share("weight_density", self.weight_density)


@dataclass(frozen=True, kw_only=True)
class MatchedConfig(PlainConfig):
    """How many edges and weights a random sheaf keeps in each place; `like` counts them."""

    edges: Sequence[int]
    """Edges kept into each receiver, in the order of the graph."""

    weights: Sequence[int]
    """Weights kept in each parameter of each node: of a head's part of the query, key, value and
    output matrix and their biases, of an MLP's matrices and biases (see `places`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(self.edges))
        object.__setattr__(self, "weights", tuple(self.weights))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for records: lists, as JSON has them."""
        return {"edges": list(self.edges), "weights": list(self.weights)}

    @classmethod
    def like(cls, sheaf: Sheaf) -> MatchedConfig:
        """The counts of a sheaf."""
        mask, where = sheaf.flat_weight_mask, places(sheaf.layout)
        kept = torch.bincount(where[mask], minlength=int(where.max()) + 1)
        edges = [
            int(n)
            for group in sheaf.layout.graph.groups
            for n in group.matrix(sheaf.edge_mask).sum(1)
        ]
        return cls(edges=tuple(edges), weights=tuple(kept.tolist()))


@dataclass(frozen=True, kw_only=True)
class MagnitudeConfig(PlainConfig):
    """Settings of magnitude pruning."""

    weight_density: float = DEFAULT_DENSITY
    """Share of the model's weights kept."""

    def __post_init__(self) -> None:
        check_share("weight_density", self.weight_density)


def random(
    model: MaskedTransformer,
    task: Task,
    config: RandomConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """Edges and weights drawn uniformly, as many as the densities say."""
    config = config or RandomConfig()
    generator = torch.Generator().manual_seed(seed)

    def draw(n: int, density: float) -> Bool[Tensor, " mask"]:
        return _draw(n, round(density * n), generator)

    edges = draw(model.graph.n_edges, config.edge_density)
    weights = draw(model.n_weights, config.weight_density)
    sheaf = _sheaf(model, edges, weights)
    return labelled(sheaf, "random", task, seed, config.as_dict())


def random_matched(
    model: MaskedTransformer,
    task: Task,
    config: MatchedConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """As random as can be with a sheaf's number of edges into every receiver and of weights in
    every parameter of every node: its shape without its choice."""
    if config is None:
        raise ConfigError(
            "random_matched needs the counts of a sheaf; give config=MatchedConfig.like(sheaf)."
        )
    graph, generator = model.graph, torch.Generator().manual_seed(seed)
    senders = [g.n_senders for g in graph.groups for _ in g.receivers]
    where = places(model.layout)
    sizes = torch.bincount(where).tolist()
    if len(config.edges) != len(senders) or len(config.weights) != len(sizes):
        raise ConfigError("These counts belong to a model of another shape; count a sheaf of this.")
    edges = torch.cat(
        [_draw(n, kept, generator) for n, kept in zip(senders, config.edges, strict=True)]
    )
    # The weights of one place lie apart in the checkpoint; sorted by place they lie together.
    drawn = torch.cat(
        [_draw(n, kept, generator) for n, kept in zip(sizes, config.weights, strict=True)]
    )
    weights = torch.empty_like(drawn)
    weights[where.argsort(stable=True)] = drawn
    sheaf = _sheaf(model, edges, weights)
    return labelled(sheaf, "random_matched", task, seed, config.as_dict())


def magnitude(
    model: MaskedTransformer,
    task: Task,
    config: MagnitudeConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """The weights of largest absolute value in the whole model, and every edge.

    The same for every task and seed.
    """
    config = config or MagnitudeConfig()
    order = model.flat_weights.abs().cpu().sort(descending=True, stable=True).indices
    weights = torch.zeros(model.n_weights, dtype=torch.bool)
    weights[order[: round(config.weight_density * model.n_weights)]] = True
    sheaf = _sheaf(model, torch.ones(model.graph.n_edges, dtype=torch.bool), weights)
    return labelled(sheaf, "magnitude", task, seed, config.as_dict())


def places(layout: Layout) -> Int[Tensor, " weight"]:
    """For each weight, in checkpoint order, the number of its place: a parameter of a node.

    The output bias of attention, which all heads of a layer share, is one place.
    """
    flat = torch.empty(layout.n_weights, dtype=torch.int64)
    views, n = unflatten(flat, layout), 0
    for layer in range(layout.n_layers):
        block = layout.block(views, layer)
        by_head = (block.w_q, block.w_k, block.w_v, block.w_o, block.b_q, block.b_k, block.b_v)
        whole = (block.b_o, block.w_in, block.w_gate, block.w_out, block.b_in, block.b_gate)
        parts = [part for view in by_head if view is not None for part in view]
        parts += [view for view in (*whole, block.b_out) if view is not None]
        for part in parts:
            part.fill_(n)
            n += 1
    return flat


def _draw(n: int, kept: int, generator: torch.Generator) -> Bool[Tensor, " mask"]:
    """A mask with exactly `kept` ones."""
    mask = torch.zeros(n, dtype=torch.bool)
    mask[torch.randperm(n, generator=generator)[:kept]] = True
    return mask


def _sheaf(
    model: MaskedTransformer, edges: Bool[Tensor, " edge"], weights: Bool[Tensor, " weight"]
) -> Sheaf:
    masks = unflatten(weights, model.layout)
    return replace(Sheaf.full(model), edge_mask=edges, weight_masks=masks)


# -- searches without what they should depend on ------------------------------------------------


def shuffled(task: Task, seed: int = 0) -> Task:
    """The task with arbitrary right answers in train and dev, fixed prompt by prompt.

    For pairs each prompt's right answer is its target or its foil with equal probability; for a
    relation the answers are dealt out anew among the prompts, so each is as frequent as before.
    What a search then finds was not in the model; the test prompts stay as they are, so that
    their accuracy says whether the task came out all the same. A search notices only if it is
    told to reproduce the right answers: the full model's own answers are not shuffled.
    """
    generator = torch.Generator().manual_seed(seed)

    def shuffle(split: Split) -> Split:
        if task.label_words is None:
            swap = torch.rand(len(split), generator=generator) < 0.5
            return replace(split, targets=torch.where(swap, 1 - split.targets, split.targets))
        order = torch.randperm(len(split), generator=generator)
        return replace(split, targets=split.targets[order], groups=split.groups[order])

    train, dev = shuffle(task.train), shuffle(task.dev)
    return replace(
        task,
        name=f"{task.name} shuffled",
        short_name=f"{task.short_name} shuffled",
        train=train,
        dev=dev,
        sha256=identity((train, dev, task.test), task.group_names, task.label_words),
    )


def untrained(model: MaskedTransformer, seed: int = 0) -> MaskedTransformer:
    """The model as it may have been before training: the same shape, everything drawn anew.

    Weights and embeddings are normal with standard deviation 0.02, smaller by sqrt(2 layers)
    where nodes write into the residual stream, biases zero and norms one, as GPT-2 starts. The
    tokenizer stays, so tasks loaded for the trained model fit.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(like: Tensor) -> Tensor:
        return (torch.randn(like.shape, generator=generator) * INITIAL_STD).to(like.device)

    def fresh(norm: Norm) -> Norm:
        bias = None if norm.bias is None else torch.zeros_like(norm.bias)
        return replace(norm, weight=torch.ones_like(norm.weight), bias=bias)

    other, fixed, layout = copy(model), model.fixed, model.layout
    other.name = f"{model.name} untrained {seed}"
    identity_text = f"{model.checkpoint_sha256} untrained {seed}"
    other.checkpoint_sha256 = hashlib.sha256(identity_text.encode()).hexdigest()
    embedding = drawn(fixed.embedding)
    tied = fixed.unembedding is fixed.embedding
    other.fixed = replace(
        fixed,
        embedding=embedding,
        positions=None if fixed.positions is None else drawn(fixed.positions),
        norms=tuple((fresh(first), fresh(second)) for first, second in fixed.norms),
        final_norm=fresh(fixed.final_norm),
        unembedding=embedding if tied else drawn(fixed.unembedding),
    )
    other.flat_weights = drawn(model.flat_weights)
    other.weights = unflatten(other.flat_weights, layout)
    for layer in range(layout.n_layers):
        block = layout.block(other.weights, layer)
        for output in (block.w_o, block.w_out):
            output.div_(math.sqrt(2 * layout.n_layers))
    for name, weight in other.weights.items():
        if name.endswith(".bias"):
            weight.zero_()
    return other
