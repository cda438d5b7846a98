"""KL(full model || sheaf) of many edge masks over the same prompts, each measured once.

KL is over the label set, mean over prompts. What was measured is kept by the hash of the mask, in
memory and in a checkpoint: a search that asks for the same masks again, at another threshold or
after an interruption, has them at once.
"""

from __future__ import annotations

import hashlib

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from discogp_lib.ablation import reference_for
from discogp_lib.checkpoint import SearchCheckpoint
from discogp_lib.config import Ablation
from discogp_lib.evaluate import final_states, kl_divergence, project_labels
from discogp_lib.graph import Group
from discogp_lib.methods.suffix import SuffixStream, Upstream
from discogp_lib.model import MaskedTransformer
from discogp_lib.tasks.base import Split, Task
from discogp_lib.unrolled import UnrolledStream

MOST_MASKS = 32
"""Masks evaluated at once at most."""

MOST_FLOATS = {"cpu": 3 << 22}
"""Numbers that masks evaluated at once may hold, by device: one core is busy with few."""

OTHER_MOST_FLOATS = 1 << 28

SAVE_EVERY = 500
"""Masks evaluated between checkpoints."""


class MeasuredKL:
    """The KL of masks that differ in one block, for block after block from the logits back."""

    def __init__(
        self,
        model: MaskedTransformer,
        task: Task,
        split: Split,
        ablation: Ablation,
        store: SearchCheckpoint | None = None,
    ) -> None:
        """split: the prompts; task: where an ablation finds what cut edges carry."""
        self.model, self.split, self.store = model, split, store
        outputs = _by_sender(model.sender_outputs(split.tokens))
        reference = reference_for(ablation, model, task)
        self.reference = None if reference is None else _by_sender(reference(split))
        self.outputs = outputs if self.reference is None else outputs - self.reference
        """What each sender of the full model writes, minus the reference if there is one."""
        full = project_labels(model, split, final_states(model, split))
        self.log_full = full.double().log_softmax(-1)
        room = MOST_FLOATS.get(model.device.type, OTHER_MOST_FLOATS) // outputs.numel()
        self.most_masks = max(1, min(MOST_MASKS, room))
        """Masks to ask for at once."""
        self.measured: dict[bytes, float] = {}
        """KL by the hash of the mask."""
        self.evaluated = 0
        """Masks evaluated by this process."""
        self._load()

    @torch.no_grad()
    def outputs_under(self, mask: Bool[Tensor, " edge"]) -> Float[Tensor, "sender token d_model"]:
        """What each sender writes when only some edges are kept, minus the reference."""
        model, tokens = self.model, self.split.tokens
        flat = None if self.reference is None else self.reference.transpose(0, 1)
        masks = mask.to(model.device, torch.float32).unsqueeze(0)
        start = model.embed(tokens).flatten(0, 1)
        stream = UnrolledStream(start, masks, model.graph.n_senders, flat)
        model.run(stream, (tokens.shape[0], tokens.shape[1]))
        return stream.buffer.outputs.transpose(0, 1).contiguous()

    def upstream(
        self,
        block: Group,
        mask: Bool[Tensor, " edge"],
        outputs: Float[Tensor, "sender token d_model"],
    ) -> Upstream:
        """What masks that cut further edges of a block share."""
        return Upstream(self.model.graph, block, mask, outputs, self.reference)

    def measure(self, upstream: Upstream, masks: Bool[Tensor, "mask edge"]) -> list[float]:
        """KL of each mask; where some are known, of those up to the first unknown one."""
        hashes = [hashlib.blake2b(m.numpy().tobytes(), digest_size=16).digest() for m in masks]
        known = 0
        while known < len(masks) and hashes[known] in self.measured:
            known += 1
        if not known:
            self.measured.update(zip(hashes, self.evaluate(upstream, masks), strict=True))
            self.evaluated += len(masks)
            if self.evaluated % SAVE_EVERY < len(masks):
                self.save()
        return [self.measured[h] for h in hashes[: known or len(masks)]]

    @torch.no_grad()
    def evaluate(self, upstream: Upstream, masks: Bool[Tensor, "mask edge"]) -> list[float]:
        """KL of each mask: one pass from the block's layer on, for all of them."""
        n, (batch, length) = len(masks), self.split.tokens.shape
        stream = SuffixStream(upstream, masks.to(self.model.device, torch.float32))
        last = (self.split.lengths - 1).repeat(n)
        states = self.model.run(stream, (n * batch, length), last=last, first_layer=upstream.layer)
        return [
            float(kl_divergence(self.log_full, logits.double().log_softmax(-1)).mean())
            for logits in (project_labels(self.model, self.split, s) for s in states.split(batch))
        ]

    def save(self) -> None:
        """Write all that was measured; the search itself is repeated from it in no time."""
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
