"""ACDC: edges cut greedily from the logits back (Conmy et al., 2023).

Receivers are visited in reverse topological order, and for each its senders, the latest first.
An edge is cut if that raises KL(full model || sheaf) over the label set, mean over prompts, by
less than a threshold.

Edges are judged in chains: several masks are evaluated at once, each cutting one more edge, as if
every edge before it were cut. The verdicts hold up to the first edge that has to stay, and the
next chain begins after it. The result is that of judging one edge at a time.

The threshold is tuned to a budget of edges by bisection, every trial a whole run from the full
model. Trials share what they have measured: the KL of a mask is looked up before it is computed,
so a trial costs nothing up to its first verdict that no earlier trial came to, and it is broken
off when it has kept more edges than the best one.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm import tqdm

from discogp_lib.ablation import reference_for
from discogp_lib.checkpoint import SearchCheckpoint
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import final_states, kl_divergence, project_labels
from discogp_lib.graph import Group
from discogp_lib.methods.base import labelled
from discogp_lib.methods.budget import at_least, edge_sheaf, some_prompts
from discogp_lib.methods.edge_config import EdgeConfig
from discogp_lib.methods.suffix import SuffixStream, Upstream, blocks, dead_receivers
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task

FIRST_THRESHOLD = 1e-2
"""Where the tuning begins, in nats."""

SMALLEST_THRESHOLD = 1e-6
"""Below, verdicts are about rounding errors."""

LARGEST_THRESHOLD = 1e3

STRIDE = 4.0
"""Factor between thresholds until one gives too many edges and one too few."""

NEAR = 0.02
"""A sheaf is near enough to the budget with this share of edges above it, or with one edge."""

TRIALS = 12
"""Thresholds tried at most."""

LONGEST_CHAIN = 16
"""Masks evaluated at once at most."""

CHAIN_FLOATS = 1 << 26
"""Masks evaluated at once may hold about this many numbers (256 MB)."""

SAVE_EVERY = 500
"""Masks evaluated between checkpoints."""


@dataclass(frozen=True, kw_only=True)
class AcdcConfig(EdgeConfig):
    """Settings of ACDC: a threshold, or a budget to which the threshold is tuned."""

    prompts: int = 32
    """Training prompts that the edges are judged on, drawn by the seed."""

    threshold: float | None = None
    """An edge stays if cutting it raises KL by at least this, in nats. None: tuned so that the
    sheaf has at least `edge_density`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and self.edge_density is not None:
            raise ConfigError("Give a threshold or an edge_density, not both.")
        if self.threshold is not None and not self.threshold > 0:
            raise ConfigError(f"threshold must be above 0, not {self.threshold}.")


@dataclass(frozen=True)
class Trial:
    """One run at one threshold."""

    threshold: float
    edges: int
    """Kept, after post-hoc pruning; where the run was broken off, kept so far."""
    edge_density: float
    kl: float
    """On the prompts the edges were judged on."""
    complete: bool
    """Whether the run was not broken off."""


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
        trial = search.run(config.threshold)
        assert trial is not None
    else:
        trial = search.tune(config.budget)
    return search.sheaf(trial, seed)


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
        self.model, self.task, self.config = model, task, config
        self.store, self.progress = store, progress
        self.split = some_prompts(task, config.prompts, seed)
        outputs = _by_sender(model.sender_outputs(self.split.tokens))
        reference = reference_for(config.ablation, model, task)
        self.reference = None if reference is None else _by_sender(reference(self.split))
        self.outputs = outputs if self.reference is None else outputs - self.reference
        full = project_labels(model, self.split, final_states(model, self.split))
        self.log_full = full.double().log_softmax(-1)
        self.longest_chain = max(1, min(LONGEST_CHAIN, CHAIN_FLOATS // self.outputs.numel()))
        self.measured: dict[bytes, float] = {}
        """KL by the hash of the mask."""
        self.evaluated = 0
        """Masks evaluated by this process."""
        self.trials: list[Trial] = []
        self.masks: dict[float, Tensor] = {}
        """Edge masks of complete trials by threshold."""
        self._load()

    # -- one threshold ------------------------------------------------------------------------

    def run(self, threshold: float, most: int | None = None) -> Trial:
        """Decide on every edge; broken off when more than `most` edges have stayed."""
        graph = self.model.graph
        mask = torch.ones(graph.n_edges, dtype=torch.bool)
        kl, stayed, complete = 0.0, 0, True
        name = f"{self.task.short_name} acdc {threshold:.2g}"
        with tqdm(total=graph.n_edges, desc=name, disable=not self.progress) as bar:
            for block in blocks(graph):
                kl = self._decide(block, mask, kl, threshold)
                stayed = int(mask[block.start :].sum())
                bar.update(block.stop - block.start)
                bar.set_postfix_str(f"left {block.start}, kept {stayed / graph.n_edges:.2%}")
                if most is not None and stayed > most:
                    complete = False
                    break
        if complete:
            mask = edge_sheaf(self.model, mask, self.config.ablation).edge_mask
            self.masks[threshold] = mask
            stayed = int(mask.sum())
        self._save()
        trial = Trial(threshold, stayed, stayed / graph.n_edges, kl, complete)
        self.trials.append(trial)
        return trial

    def _decide(
        self, block: Group, mask: Bool[Tensor, " edge"], kl: float, threshold: float
    ) -> float:
        """Cut edges into the receivers of a block, in place; returns the KL of what is left."""
        graph = self.model.graph
        dead = dead_receivers(graph, block, mask, zero=self.reference is None)
        block.matrix(mask)[dead] = False
        upstream = Upstream(graph, block, mask, self.outputs, self.reference)
        edges = (block.start + mask[block.start : block.stop].nonzero().flatten()).flip(0).tolist()
        done, size = 0, 2
        while done < len(edges):
            values = self._measure(upstream, mask, edges[done : done + size])
            for value in values:
                edge, done = edges[done], done + 1
                if value - kl >= threshold:
                    size = max(1, size // 2)
                    break
                mask[edge], kl = False, value
            else:
                size = min(2 * size, self.longest_chain)
        return kl

    def _measure(
        self, upstream: Upstream, mask: Bool[Tensor, " edge"], chain: list[int]
    ) -> list[float]:
        """KL after cutting the first edge of a chain, the first two, and so on.

        Where some are known already, those up to the first unknown one; at least one.
        """
        masks = mask.repeat(len(chain), 1)
        for i, edge in enumerate(chain):
            masks[i:, edge] = False
        hashes = [hashlib.blake2b(m.numpy().tobytes(), digest_size=16).digest() for m in masks]
        known = 0
        while known < len(chain) and hashes[known] in self.measured:
            known += 1
        if not known:
            self.measured.update(zip(hashes, self._evaluate(upstream, masks), strict=True))
            self.evaluated += len(chain)
            if self.evaluated % SAVE_EVERY < len(chain):
                self._save()
        return [self.measured[h] for h in hashes[: known or len(chain)]]

    @torch.no_grad()
    def _evaluate(self, upstream: Upstream, masks: Bool[Tensor, "mask edge"]) -> list[float]:
        """KL of each mask: one pass from the block's layer on, for all of them."""
        n, (batch, length) = len(masks), self.split.tokens.shape
        stream = SuffixStream(upstream, masks.to(self.model.device, torch.float32))
        last = (self.split.lengths - 1).repeat(n)
        states = self.model.run(stream, (n * batch, length), last=last, first_layer=upstream.layer)
        return [
            float(kl_divergence(self.log_full, logits.double().log_softmax(-1)).mean())
            for logits in (project_labels(self.model, self.split, s) for s in states.split(batch))
        ]

    # -- tuning the threshold -----------------------------------------------------------------

    def tune(self, density: float) -> Trial:
        """The trial with the fewest edges that has at least the density.

        If none has (not even the smallest threshold leaves as many), the one with the most.
        """
        target = at_least(density, self.model.graph.n_edges)
        for _ in range(TRIALS):
            best = self._best(target)
            if best is not None and best.edges <= max(target + 1, (1 + NEAR) * target):
                return best
            threshold = self._next_threshold(target)
            if threshold is None:
                break
            self.run(threshold, most=2 * target + 8 if best is None else best.edges - 1)
        best = self._best(target)
        if best is not None:
            return best
        enough = [t.threshold for t in self.trials if t.edges >= target]
        if enough:
            return self.run(max(enough))
        return max((t for t in self.trials if t.complete), key=lambda t: t.edges)

    def _best(self, target: int) -> Trial | None:
        enough = [t for t in self.trials if t.complete and t.edges >= target]
        return min(enough, key=lambda t: t.edges, default=None)

    def _next_threshold(self, target: int) -> float | None:
        """Between the last threshold with enough edges and the first with too few."""
        low = max((t.threshold for t in self.trials if t.edges >= target), default=None)
        few = [t.threshold for t in self.trials if t.complete and t.edges < target]
        high = min((t for t in few if low is None or t > low), default=None)
        if low is None and high is None:
            return FIRST_THRESHOLD
        if high is None:
            return low * STRIDE if low is not None and low < LARGEST_THRESHOLD else None
        if low is None:
            return high / STRIDE if high > SMALLEST_THRESHOLD else None
        return math.sqrt(low * high) if high > 1.001 * low else None

    def sheaf(self, trial: Trial, seed: int) -> Sheaf:
        """The sheaf of a complete trial."""
        sheaf = edge_sheaf(self.model, self.masks[trial.threshold], self.config.ablation)
        enough = self.config.threshold is not None or trial.edge_density >= self.config.budget
        return labelled(
            sheaf,
            "acdc",
            self.task,
            seed,
            self.config.as_dict(),
            status="reached" if enough else "no threshold leaves as many edges",
            threshold=trial.threshold,
            kl=trial.kl,
            trials=[asdict(t) for t in self.trials],
            evaluated=self.evaluated,
        )

    # -- the checkpoint -----------------------------------------------------------------------

    def _save(self) -> None:
        """Write all measured masks; the runs themselves are repeated from them in no time."""
        if self.store is not None and self.measured:
            hashes = torch.frombuffer(bytearray(b"".join(self.measured)), dtype=torch.uint8)
            values = torch.tensor(list(self.measured.values()), dtype=torch.float64)
            self.store.save({"hashes": hashes, "values": values}, {})

    def _load(self) -> None:
        saved = None if self.store is None else self.store.load()
        if saved is not None:
            hashes = saved.tensors["hashes"].numpy().tobytes()
            values = saved.tensors["values"].tolist()
            self.measured = {hashes[16 * i : 16 * i + 16]: v for i, v in enumerate(values)}


def _by_sender(
    values: Float[Tensor, "batch pos sender d_model"],
) -> Float[Tensor, "sender token d_model"]:
    return values.flatten(0, 1).transpose(0, 1).contiguous()
