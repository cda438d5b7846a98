"""MaskedTransformer: the logits of a language model under a sheaf.

Nothing here has a mode: which edges and weights are on is an argument of every call, so nothing
can be left switched on or off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from discogp_lib.architecture import activation_of, fixed_of, layout_of
from discogp_lib.checkpoints import Checkpoint, load_checkpoint
from discogp_lib.errors import ConfigError, TaskError
from discogp_lib.graph import Graph
from discogp_lib.layout import Block, unflatten
from discogp_lib.norm import Norm
from discogp_lib.stream import ResidualStream, Stream
from discogp_lib.unrolled import UnrolledStream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from discogp_lib.sheaf import Sheaf

Weights = Mapping[str, Tensor]
"""Maskable parameters by their Hugging Face names."""


@dataclass(frozen=True)
class Positions:
    """Which positions of a batch are computed, and what they may look at."""

    batch: int
    length: int
    rotation: tuple[Tensor, Tensor] | None
    """Cosine and sine for the rows of the flat token axis; None without rotary positions."""
    visible: Bool[Tensor, "1 batch query key"] | None
    """None: causal."""


class MaskedTransformer:
    """A GPT-2 or Llama language model whose edges and weights can be cut, call by call."""

    def __init__(self, checkpoint: Checkpoint, device: str | torch.device = "cpu") -> None:
        self.name = checkpoint.name
        self.checkpoint_sha256 = checkpoint.sha256
        self.tokenizer: PreTrainedTokenizerBase = checkpoint.tokenizer
        self.bos = checkpoint.bos
        self.device = torch.device(device)
        hf = checkpoint.model
        self.layout = layout_of(hf)
        self.fixed = fixed_of(hf, self.layout, self.device)
        self.activation = activation_of(hf)
        # One flat vector behind all maskable weights: masks, samples and optimisers then work
        # on vectors, and `weights` are views into it.
        parameters = dict(hf.named_parameters())
        self.flat_weights = torch.cat(
            [parameters[name].detach().flatten() for name in self.layout.weight_shapes]
        ).to(self.device, torch.float32)
        self.weights = unflatten(self.flat_weights, self.layout)

    @property
    def graph(self) -> Graph:
        """The computation graph."""
        return self.layout.graph

    @property
    def n_weights(self) -> int:
        """Number of maskable weights."""
        return self.layout.n_weights

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""
        return len(self.fixed.unembedding)

    @property
    def most_tokens(self) -> int:
        """How many tokens a prompt may have, by what the checkpoint says."""
        positions, told = self.fixed.positions, self.tokenizer.model_max_length
        return told if positions is None else min(told, len(positions))

    def masked_weights(self, sheaf: Sheaf | None) -> Weights:
        """The weights that a sheaf keeps, with zeros elsewhere."""
        if sheaf is None:
            return self.weights
        sheaf.check_fits(self)
        if sheaf.keeps_all_weights:
            return self.weights
        masks = sheaf.weight_masks
        return {name: w * masks[name].to(self.device) for name, w in self.weights.items()}

    @torch.no_grad()
    def logits(
        self, tokens: Int[Tensor, "batch pos"], sheaf: Sheaf | None = None
    ) -> Float[Tensor, "batch pos vocab"]:
        """Logits at every position, under a sheaf or of the full model.

        Batches of unequal prompts are padded on the right: causal attention never looks there.
        """
        if sheaf is not None:
            sheaf.check_cuts_to_zero()
        edge_mask = None if sheaf is None else sheaf.edge_mask
        hidden = self.hidden(tokens, weights=self.masked_weights(sheaf), edge_mask=edge_mask)
        return hidden @ self.fixed.unembedding.T

    def hidden(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        weights: Weights | None = None,
        edge_mask: Tensor | None = None,
        reference: Float[Tensor, "batch pos sender d_model"] | None = None,
        last: Int[Tensor, " batch"] | None = None,
    ) -> Tensor:
        """What the unembedding sees: (batch, pos, d_model), or (batch, d_model) at `last`.

        weights: the weights to use (masked as the caller likes), by default all of them.
        edge_mask: (edges) or (masks, edges), bool or float; None keeps every edge. With several
            masks the batch is as many equal parts, and each part sees its own mask.
        reference: per sender, the value that a cut edge carries in its place; zero by default.
        last: the position of each prompt at which alone the result is wanted. Everything that
            only other positions need is left out.

        Differentiable in `weights` and in a single float `edge_mask`.
        """
        start = self.embed(tokens).flatten(0, 1)
        stream: Stream
        if edge_mask is None or (edge_mask.dtype == torch.bool and bool(edge_mask.all())):
            stream = ResidualStream(start)
        else:
            masks = torch.atleast_2d(edge_mask.to(self.device, start.dtype))
            flat = None if reference is None else reference.flatten(0, 1)
            stream = UnrolledStream(start, masks, self.graph.n_senders, flat)
        shape = (tokens.shape[0], tokens.shape[1])
        return self.run(stream, shape, weights=weights, last=last)

    def run(
        self,
        stream: Stream,
        shape: tuple[int, int],
        *,
        weights: Weights | None = None,
        last: Int[Tensor, " batch"] | None = None,
        first_layer: int = 0,
    ) -> Tensor:
        """`hidden`, from a stream that holds what is written before `first_layer`.

        shape: (batch, pos) of the stream's tokens.
        """
        weights = self.weights if weights is None else weights
        whole = self._positions(shape)
        for layer in range(first_layer, self.layout.n_layers - 1):
            self._layer(layer, weights, stream, stream, whole, whole)
        if last is None:
            final = self._layer(self.layout.n_layers - 1, weights, stream, stream, whole, whole)
            return self.fixed.final_norm(final).unflatten(0, shape)
        part, kept = self._at(last.to(self.device), whole)
        final = self._layer(
            self.layout.n_layers - 1, weights, stream, stream.narrow(kept), whole, part
        )
        return self.fixed.final_norm(final)

    def _layer(
        self,
        layer: int,
        weights: Weights,
        source: Stream,
        target: Stream,
        whole: Positions,
        part: Positions,
    ) -> Tensor:
        """One layer; keys and values from `source`, everything else in `target`.

        After the last layer, the sum that the logits see; before, nothing is asked for.
        """
        block = self.layout.block(weights, layer)
        attention_norm, mlp_norm = self.fixed.norms[layer]
        queries, keys_values = self._read_heads(layer, block, attention_norm, source, target)
        mixed = self._attend(queries, keys_values, whole, part)
        target.write(self.graph.head(layer, 0), mixed, block.w_o, block.b_o)
        neurons = self._neurons(target, layer, mlp_norm, block)
        target.write(self.graph.mlp(layer), neurons, block.w_out.unsqueeze(0), block.b_out)
        if layer < self.layout.n_layers - 1:
            return neurons
        return target.total(self.graph.group("logits", self.layout.n_layers))

    def _read_heads(
        self, layer: int, block: Block, norm: Norm, source: Stream, target: Stream
    ) -> tuple[Tensor, Tensor]:
        """Queries of `target`, keys and values of `source`; in one read where they are the same."""
        group, n_heads = self.graph.group("heads", layer), self.layout.n_heads
        weight = _joined([block.w_q, block.w_k, block.w_v], 0)
        bias = None
        if block.b_q is not None and block.b_k is not None and block.b_v is not None:
            bias = torch.cat([block.b_q, block.b_k, block.b_v])
        if source is target:
            read = source.read(group, norm, weight, bias)
            return read[:n_heads], read[n_heads:]
        parts = []
        for stream, first, stop in ((target, 0, n_heads), (source, n_heads, len(weight))):
            part_bias = None if bias is None else bias[first:stop]
            part = group.part(first, stop)
            parts.append(stream.read(part, norm, weight[first:stop], part_bias))
        return parts[0], parts[1]

    def _neurons(
        self, stream: Stream, layer: int, norm: Norm, block: Block
    ) -> Float[Tensor, "1 token d_mlp"]:
        """The MLP's hidden activations."""
        weight, bias = block.w_in, block.b_in
        if block.w_gate is not None:
            weight = _joined([block.w_gate, weight], -1)
            bias = None if bias is None or block.b_gate is None else torch.cat([block.b_gate, bias])
        bias = None if bias is None else bias.unsqueeze(0)
        hidden = stream.read(self.graph.group("mlp", layer), norm, weight.unsqueeze(0), bias)
        if block.w_gate is None:
            return self.activation(hidden)
        gate, up = hidden.chunk(2, dim=-1)
        return self.activation(gate) * up

    def _attend(
        self,
        queries: Float[Tensor, "head query_token d_head"],
        keys_values: Float[Tensor, "twice_kv_head token d_head"],
        whole: Positions,
        part: Positions,
    ) -> Float[Tensor, "head query_token d_head"]:
        """What each head takes from where it looks, before its output projection."""
        keys, values = keys_values.chunk(2)
        queries, keys = _rotate(queries, part), _rotate(keys, whole)
        repeats = len(queries) // len(keys)
        if repeats > 1:
            keys, values = keys.repeat_interleave(repeats, 0), values.repeat_interleave(repeats, 0)
        # (head, batch, pos, d_head): attention does not care which of the first two is which.
        taken = F.scaled_dot_product_attention(
            queries.unflatten(1, (part.batch, part.length)),
            keys.unflatten(1, (whole.batch, whole.length)),
            values.unflatten(1, (whole.batch, whole.length)),
            attn_mask=part.visible,
            is_causal=part.visible is None,
        )
        return taken.flatten(1, 2)

    def embed(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """The `input` sender: token and, where they are learned, position embedding."""
        self._check_tokens(tokens)
        embedded = self.fixed.embedding[tokens.to(self.device)]
        if self.fixed.positions is None:
            return embedded
        return embedded + self.fixed.positions[: tokens.shape[1]]

    def _check_tokens(self, tokens: Int[Tensor, "batch pos"]) -> None:
        """Raise `TaskError` unless they are prompts that this model can read."""
        if tokens.ndim != 2:
            raise TaskError(
                f"Tokens are a table (prompt, position), not of shape {tuple(tokens.shape)}; "
                "a single prompt is tokens[None]."
            )
        if self.fixed.positions is not None and tokens.shape[1] > len(self.fixed.positions):
            raise TaskError(
                f"The prompts are {tokens.shape[1]} tokens long, and {self.name!r} reads "
                f"{len(self.fixed.positions)} at most."
            )
        # On the CPU, where splits are: elsewhere it would have to wait for the device.
        if tokens.device.type == "cpu" and tokens.numel() and tokens.max() >= self.vocabulary_size:
            raise TaskError(
                f"{self.name!r} has {self.vocabulary_size:,} tokens and none of number "
                f"{int(tokens.max()):,}; make the task with this model."
            )

    def _positions(self, shape: tuple[int, int]) -> Positions:
        batch, length = shape
        rotation = None
        if self.fixed.rotary is not None:
            cos, sin = self.fixed.rotary.table(length)
            rotation = cos.repeat(batch, 1), sin.repeat(batch, 1)
        return Positions(batch, length, rotation, visible=None)

    def _at(
        self, last: Int[Tensor, " batch"], whole: Positions
    ) -> tuple[Positions, Int[Tensor, " batch"]]:
        """One position of each prompt, and where it lies on the flat token axis."""
        keys = torch.arange(whole.length, device=self.device)
        visible = (keys <= last[:, None])[None, :, None, :]
        kept = torch.arange(whole.batch, device=self.device) * whole.length + last
        rotation = whole.rotation and (whole.rotation[0][kept], whole.rotation[1][kept])
        return Positions(whole.batch, 1, rotation, visible), kept

    @torch.no_grad()
    def sender_outputs(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos sender d_model"]:
        """What every sender writes in the full model: the material of reference values."""
        return self.sender_outputs_from(self.embed(tokens))

    @torch.no_grad()
    def sender_outputs_from(
        self, start: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos sender d_model"]:
        """The same, with the embedding's output given."""
        masks = torch.ones(1, self.graph.n_edges, device=self.device)
        stream = UnrolledStream(start.flatten(0, 1), masks, self.graph.n_senders)
        self.run(stream, (start.shape[0], start.shape[1]))
        return stream.buffer.outputs.unflatten(0, start.shape[:2]).clone()


def load_model(name: str | Path, device: str | torch.device = "cpu") -> MaskedTransformer:
    """A model to search in: "mini", "smollm2-135m", "gpt2", a hub name, or a local directory."""
    check_device(device)
    return MaskedTransformer(load_checkpoint(name), device)


def check_device(device: str | torch.device) -> None:
    """Raise `ConfigError` unless this machine can compute there."""
    try:
        torch.zeros(1, device=device).item()  # "meta" makes tensors, but they hold nothing
    except Exception as error:  # each kind of device has its own types
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ConfigError(
            f"The device {str(device)!r} cannot be used here ({reason}); take 'cpu', or 'cuda' "
            "where there is a GPU."
        ) from None


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    """The weights of several maps as one, in the layout that the checkpoint has them in."""
    if parts[0].stride(-1) == 1:
        return torch.cat(parts, dim)
    turned = {0: 0, -1: -2}[dim]
    return torch.cat([part.transpose(-1, -2) for part in parts], turned).transpose(-1, -2)


def _rotate(x: Float[Tensor, "head token d_head"], where: Positions) -> Tensor:
    """Apply rotary positions, where the model has them."""
    if where.rotation is None:
        return x
    cos, sin = where.rotation
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
