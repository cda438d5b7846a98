"""Where each node's weights lie in the checkpoint.

Masks are over the checkpoint's own parameters, under their Hugging Face names and in their
shapes, so that a sheaf's weights are an ordinary checkpoint with zeros. This module knows the
two supported architectures and shows a layer's parameters in one common form (`Block`), as
views: what is written through a view lands in the parameter.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from discogp_lib.graph import Graph

Architecture = Literal["gpt2", "llama"]


@dataclass(frozen=True)
class Block:
    """The maskable parameters of one layer; every field is a view, `None` where there is none."""

    w_q: Tensor
    """(head, d_model, d_head)"""
    w_k: Tensor
    """(kv_head, d_model, d_head)"""
    w_v: Tensor
    """(kv_head, d_model, d_head)"""
    w_o: Tensor
    """(head, d_head, d_model)"""
    b_q: Tensor | None
    """(head, d_head)"""
    b_k: Tensor | None
    b_v: Tensor | None
    b_o: Tensor | None
    """(d_model); each head writes 1/H of it."""
    w_in: Tensor
    """(d_model, d_mlp)"""
    w_gate: Tensor | None
    """(d_model, d_mlp), for gated MLPs"""
    w_out: Tensor
    """(d_mlp, d_model)"""
    b_in: Tensor | None
    b_gate: Tensor | None
    b_out: Tensor | None


@dataclass(frozen=True)
class Layout:
    """The shape of a model: all that is needed to name and place its edges and weights."""

    architecture: Architecture
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_mlp: int
    attention_bias: bool
    mlp_bias: bool

    @cached_property
    def graph(self) -> Graph:
        """The computation graph of this shape."""
        return Graph(self.n_layers, self.n_heads, self.n_kv_heads)

    @cached_property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every maskable parameter, in checkpoint order."""
        per_layer = self._gpt2_shapes() if self.architecture == "gpt2" else self._llama_shapes()
        return {
            f"{self._prefix(layer)}.{name}": shape
            for layer in range(self.n_layers)
            for name, shape in per_layer.items()
        }

    def _prefix(self, layer: int) -> str:
        return f"{'transformer.h' if self.architecture == 'gpt2' else 'model.layers'}.{layer}"

    def _gpt2_shapes(self) -> dict[str, tuple[int, ...]]:
        d, m = self.d_model, self.d_mlp
        return {
            "attn.c_attn.weight": (d, 3 * d),
            "attn.c_attn.bias": (3 * d,),
            "attn.c_proj.weight": (d, d),
            "attn.c_proj.bias": (d,),
            "mlp.c_fc.weight": (d, m),
            "mlp.c_fc.bias": (m,),
            "mlp.c_proj.weight": (m, d),
            "mlp.c_proj.bias": (d,),
        }

    def _llama_shapes(self) -> dict[str, tuple[int, ...]]:
        d, m, q, kv = (
            self.d_model,
            self.d_mlp,
            self.n_heads * self.d_head,
            self.n_kv_heads * self.d_head,
        )
        matrices = {
            "self_attn.q_proj": (q, d),
            "self_attn.k_proj": (kv, d),
            "self_attn.v_proj": (kv, d),
            "self_attn.o_proj": (d, q),
            "mlp.gate_proj": (m, d),
            "mlp.up_proj": (m, d),
            "mlp.down_proj": (d, m),
        }
        shapes: dict[str, tuple[int, ...]] = {}
        for name, shape in matrices.items():
            shapes[f"{name}.weight"] = shape
            if self.mlp_bias if name.startswith("mlp") else self.attention_bias:
                shapes[f"{name}.bias"] = shape[:1]
        return shapes

    def block(self, values: Mapping[str, Tensor], layer: int) -> Block:
        """One layer's part of `values` (weights, masks or gradients by parameter name)."""
        prefix = self._prefix(layer)
        if self.architecture == "gpt2":
            return self._gpt2_block(values, prefix)
        return self._llama_block(values, prefix)

    def _gpt2_block(self, values: Mapping[str, Tensor], prefix: str) -> Block:
        heads, d_head = self.n_heads, self.d_head
        # c_attn holds queries, keys and values side by side; unbind's backward is one stack,
        # where slicing would fill three zero tensors of the whole size.
        w = values[f"{prefix}.attn.c_attn.weight"].view(self.d_model, 3, heads, d_head)
        w_q, w_k, w_v = w.permute(1, 2, 0, 3).unbind(0)
        b_q, b_k, b_v = values[f"{prefix}.attn.c_attn.bias"].view(3, heads, d_head).unbind(0)
        return Block(
            w_q=w_q,
            w_k=w_k,
            w_v=w_v,
            w_o=values[f"{prefix}.attn.c_proj.weight"].view(heads, d_head, self.d_model),
            b_q=b_q,
            b_k=b_k,
            b_v=b_v,
            b_o=values[f"{prefix}.attn.c_proj.bias"],
            w_in=values[f"{prefix}.mlp.c_fc.weight"],
            w_gate=None,
            w_out=values[f"{prefix}.mlp.c_proj.weight"],
            b_in=values[f"{prefix}.mlp.c_fc.bias"],
            b_gate=None,
            b_out=values[f"{prefix}.mlp.c_proj.bias"],
        )

    def _llama_block(self, values: Mapping[str, Tensor], prefix: str) -> Block:
        attn, mlp, d_head = f"{prefix}.self_attn", f"{prefix}.mlp", self.d_head

        def rows(name: str) -> Tensor:
            return values[f"{name}.weight"].view(-1, d_head, self.d_model).transpose(1, 2)

        def bias(name: str, by_head: bool) -> Tensor | None:
            value = values.get(f"{name}.bias")
            return value.view(-1, d_head) if value is not None and by_head else value

        return Block(
            w_q=rows(f"{attn}.q_proj"),
            w_k=rows(f"{attn}.k_proj"),
            w_v=rows(f"{attn}.v_proj"),
            w_o=values[f"{attn}.o_proj.weight"]
            .view(self.d_model, self.n_heads, d_head)
            .permute(1, 2, 0),
            b_q=bias(f"{attn}.q_proj", by_head=True),
            b_k=bias(f"{attn}.k_proj", by_head=True),
            b_v=bias(f"{attn}.v_proj", by_head=True),
            b_o=bias(f"{attn}.o_proj", by_head=False),
            w_in=values[f"{mlp}.up_proj.weight"].T,
            w_gate=values[f"{mlp}.gate_proj.weight"].T,
            w_out=values[f"{mlp}.down_proj.weight"].T,
            b_in=bias(f"{mlp}.up_proj", by_head=False),
            b_gate=bias(f"{mlp}.gate_proj", by_head=False),
            b_out=bias(f"{mlp}.down_proj", by_head=False),
        )

    @property
    def n_weights(self) -> int:
        """Number of maskable weights, the denominator of every weight density."""
        return sum(math.prod(shape) for shape in self.weight_shapes.values())


def unflatten(flat: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Views of a vector over all maskable weights, by parameter name."""
    sizes = [math.prod(shape) for shape in layout.weight_shapes.values()]
    parts = flat.split(sizes)
    return {
        name: part.view(shape)
        for part, (name, shape) in zip(parts, layout.weight_shapes.items(), strict=True)
    }
