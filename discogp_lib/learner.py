"""The masks being learned: drawing them, the losses of a batch, one step of the optimiser.

Everything random is a function of (seed, step): the batch, and the noise of the masks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from discogp_lib.config import Push, SearchConfig
from discogp_lib.evaluate import Reference, final_states, is_right, project_labels, share_of
from discogp_lib.layout import unflatten
from discogp_lib.masks import MaskLogits, complement
from discogp_lib.model import MaskedTransformer
from discogp_lib.objective import answer_log_odds, completeness_loss, fidelity_loss
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split, Task

Kind = Literal["weights", "edges"]

PROBED_LOGITS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
"""Starts that the probe tries, smallest first; at 6 a mask is off once in 400 draws."""

PROBE_AGREEMENT = 0.9
"""A start is good enough when sampled sheaves answer this share of prompts as the full model."""

MEMORY = 0.9
"""Share of the running mean of the fidelity loss that is kept from step to step."""

SALIENCE_PROMPTS = 256
"""Training prompts by which masks are put in an order at the start."""

FARTHEST = 4.0
"""Logits are spread over at most so many means; Adam hardly moves those farther from zero."""


class Learner:
    """Masks of some kinds over a model, everything else held at a given sheaf."""

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
        self.model, self.task, self.config, self.seed = model, task, config, seed
        self.kinds, self.steps, self.base, self.reference = kinds, steps, base, reference
        self.train = task.train
        self.full_states = final_states(model, self.train)
        self.running = 0.0  # mean of the fidelity loss over the last steps
        self._prepare_buffers()

    def _prepare_buffers(self) -> None:
        """Masked weights and edges of the current sample, as leaves that collect gradients.

        The leaves are views of flat vectors, and so are their gradients: the masks then work on
        vectors, and the complement's gradient is added to the sheaf's without another copy.
        """
        model = self.model
        self.values: dict[Kind, Tensor] = {
            "weights": model.flat_weights,
            "edges": torch.ones(model.graph.n_edges, device=model.device),
        }
        base = self.base
        self.sample = self._all_on()
        cut: dict[Kind, bool] = {
            "weights": not base.keeps_all_weights,
            "edges": not base.keeps_all_edges,
        }
        # The complement reverses what is searched and what an earlier stage has cut.
        self.reversed = [kind for kind in cut if kind in self.kinds or cut[kind]]
        self.grads = {kind: torch.zeros_like(self.sample[kind]) for kind in self.kinds}
        self.edge_leaf = self.sample["edges"].detach()
        self.weight_leaves = {
            name: view.detach()
            for name, view in unflatten(self.sample["weights"], model.layout).items()
        }
        if "edges" in self.kinds:
            self.edge_leaf.requires_grad_().grad = self.grads["edges"]
        if "weights" in self.kinds:
            grads = unflatten(self.grads["weights"], model.layout)
            for name, leaf in self.weight_leaves.items():
                leaf.requires_grad_().grad = grads[name]
        # With every edge kept, and none to be learned, the plain residual stream will do.
        self.unrolled = "edges" in self.kinds or cut["edges"]

    def _all_on(self) -> dict[Kind, Tensor]:
        """Weights and edges with every mask of this stage on."""
        model, base = self.model, self.base
        return {
            "weights": model.flat_weights * base.flat_weight_mask.to(model.device),
            "edges": base.edge_mask.to(model.device, torch.float32),
        }

    def begin(self) -> dict[str, float]:
        """Fresh masks, their logits at the given or the probed start, which is returned."""
        given = {"weights": self.config.weight_logit, "edges": self.config.edge_logit}
        start: dict[str, float] = {
            kind: value for kind in self.kinds if (value := given[kind]) is not None
        }
        if len(start) < len(self.kinds):
            probed = self._probe(start)
            start = {kind: start.get(kind, probed) for kind in self.kinds}
        self.masks = {kind: self._fresh_masks(kind, start[kind]) for kind in self.kinds}
        if self.config.spread:
            for kind, salience in self.salience().items():
                above = (-torch.log1p(-_places(salience))).clamp(max=FARTHEST)
                self.masks[kind].logits += self.config.spread * above
        return start

    def salience(self) -> dict[Kind, Float[Tensor, " mask"]]:
        """What each mask matters while all are on: what taking it off would change, to first
        order, in the log-odds of the full model's answer; sum over prompts of its square.

        The gradient of a sum with random signs has that as the mean of its square, so prompts can
        be taken several at a time.
        """
        size = self.config.batch_size
        for kind, values in self._all_on().items():
            self.sample[kind].copy_(values)
        found = {kind: torch.zeros_like(grad) for kind, grad in self.grads.items()}
        for step in range(math.ceil(SALIENCE_PROMPTS / size)):
            batch = self.train.select(batch_index(len(self.train), size, self.seed, step))
            for grad in self.grads.values():
                grad.zero_()
            odds = answer_log_odds(self.model, self._states(batch), batch.labels)
            signs = torch.randint(2, (len(batch),), generator=_generator(step)) * 2 - 1
            (odds * signs.to(odds)).sum().backward()
            for kind, sums in found.items():
                sums += (self.grads[kind] * self.values[kind]) ** 2
        return found

    def _fresh_masks(self, kind: Kind, logit: float) -> MaskLogits:
        config = self.config
        temperature = config.weight_temperature if kind == "weights" else config.edge_temperature
        noise_seed = 2 * self.seed + (kind == "edges")
        return MaskLogits.start(self.values[kind], logit, temperature, noise_seed)

    def _probe(self, given: dict[str, float]) -> float:
        """The smallest logit start at which sampled sheaves still answer as the full model does.

        A deep model is broken by masks that a shallow one does not notice.
        """
        some = self.train.first(64)
        answers = project_labels(self.model, some, self.full_states[: len(some)]).argmax(-1)
        for logit in PROBED_LOGITS:
            agreements = []
            for draw in (-1, -2):
                for kind in self.kinds:
                    masks = self._fresh_masks(kind, given.get(kind, logit))
                    masks.sample(draw, self.sample[kind], self.config.noise)
                states = final_states(
                    self.model,
                    some,
                    weights={n: leaf.detach() for n, leaf in self.weight_leaves.items()},
                    edge_mask=self.edge_leaf.detach() if self.unrolled else None,
                    reference=self.reference,
                )
                same = is_right(project_labels(self.model, some, states), answers)
                agreements.append(share_of(same))
            if min(agreements) >= PROBE_AGREEMENT:
                return logit
        return PROBED_LOGITS[-1]

    def step(self, step: int) -> dict[str, float]:
        """Sample, both losses, one optimiser step; returns the losses."""
        config = self.config
        index = batch_index(len(self.train), config.batch_size, self.seed, step)
        batch = self.train.select(index)
        for kind in self.kinds:
            self.masks[kind].sample(step, self.sample[kind], config.noise)
            self.grads[kind].zero_()
        losses = {
            "fidelity": self._sheaf_step(batch, self.full_states[index.to(self.model.device)])
        }
        if config.completeness > 0 and step % config.complement_every == 0:
            losses["completeness"] = self._complement_step(batch)
        for kind in self.kinds:
            rate = config.weight_learning_rate if kind == "weights" else config.edge_learning_rate
            rate *= config.warmth(step / self.steps)
            push = self._push(kind, step)
            self.masks[kind].update(self.grads[kind], step, rate, push, config.noise)
        self.running = MEMORY * self.running + (1 - MEMORY) * losses["fidelity"]
        return losses

    def _schedule(self, kind: Kind) -> Push:
        return self.config.weight_push if kind == "weights" else self.config.edge_push

    def _push(self, kind: Kind, step: int) -> float:
        """The push at a step; only one that fades asks for the density."""
        push = self._schedule(kind)
        density = self.masks[kind].density() if push.target else 1.0
        return push.at(step / self.steps, density) * self.config.eagerness(self.running)

    def _sheaf_step(self, batch: Split, full_states: Float[Tensor, "prompt d_model"]) -> float:
        """Set the gradient of the fidelity loss; the pass's memory is free when it returns."""
        loss = fidelity_loss(
            self.config.fidelity,
            self.model,
            self._states(batch),
            full_states,
            batch.labels,
            batch.targets,
        )
        loss.backward()
        return float(loss.detach())

    def _complement_step(self, batch: Split) -> float:
        """Add the gradient of the completeness loss, through the reverse of the same sample.

        The leaves now hold value minus sample, so the gradient for the sample has the other sign.
        """
        for kind in self.reversed:
            complement(self.values[kind], self.sample[kind])
        loss = completeness_loss(self.model, self._states(batch), batch.labels)
        (-self.config.completeness * loss).backward()
        for kind in set(self.reversed) - set(self.kinds):
            complement(self.values[kind], self.sample[kind])
        return float(loss.detach())

    def _states(self, batch: Split) -> Tensor:
        """What the unembedding sees under the current sample."""
        return self.model.hidden(
            batch.tokens,
            weights=self.weight_leaves,
            edge_mask=self.edge_leaf if self.unrolled else None,
            reference=None if self.reference is None else self.reference(batch),
            last=batch.lengths - 1,
        )

    def sheaf(self) -> Sheaf:
        """The deterministic sheaf of the current logits."""
        edge_mask, weight_masks = self.base.edge_mask, self.base.weight_masks
        if "edges" in self.kinds:
            edge_mask = self.masks["edges"].hard().cpu()
        if "weights" in self.kinds:
            weight_masks = unflatten(self.masks["weights"].hard().cpu(), self.model.layout)
        return replace(self.base, edge_mask=edge_mask, weight_masks=weight_masks)


def batch_index(n: int, size: int, seed: int, step: int) -> Int[Tensor, " batch"]:
    """The prompts of a step: shuffled anew each epoch, a pure function of seed and step."""
    positions = range(step * size, (step + 1) * size)
    epochs = sorted({p // n for p in positions})
    orders = {e: _order(n, seed, e) for e in epochs}
    return torch.tensor([int(orders[p // n][p % n]) for p in positions])


def _order(n: int, seed: int, epoch: int) -> Int[Tensor, " prompt"]:
    return torch.randperm(n, generator=_generator(1_000_003 * seed + epoch))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _places(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The share of the values that come before each."""
    places = torch.empty_like(values)
    places[values.argsort()] = torch.arange(len(values)).to(values) / len(values)
    return places
