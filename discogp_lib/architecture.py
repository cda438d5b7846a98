"""What is taken from a Hugging Face model: its shape, its activation, and what is never masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from discogp_lib.errors import CheckpointError
from discogp_lib.layout import Layout
from discogp_lib.norm import Norm

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass(frozen=True)
class Rotary:
    """Rotary position embedding: the frequencies, already scaled as the checkpoint asks."""

    frequencies: Float[Tensor, " half"]
    scaling: float

    def table(self, n_positions: int) -> tuple[Float[Tensor, "pos d"], Float[Tensor, "pos d"]]:
        """Cosine and sine of every position."""
        positions = torch.arange(n_positions, device=self.frequencies.device)
        angles = torch.outer(positions.to(self.frequencies.dtype), self.frequencies)
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos() * self.scaling, angles.sin() * self.scaling


@dataclass(frozen=True)
class Fixed:
    """The parameters that are never masked."""

    embedding: Float[Tensor, "vocab d_model"]
    positions: Float[Tensor, "max_pos d_model"] | None
    rotary: Rotary | None
    norms: tuple[tuple[Norm, Norm], ...]
    """Before attention and before the MLP, layer by layer."""
    final_norm: Norm
    unembedding: Float[Tensor, "vocab d_model"]


def layout_of(hf: PreTrainedModel) -> Layout:
    """The model's shape."""
    config = hf.config
    if config.model_type == "gpt2":
        if config.scale_attn_by_inverse_layer_idx or not config.scale_attn_weights:
            raise CheckpointError(
                "This GPT-2 scales its attention in a way that is not supported; use a checkpoint "
                "with scale_attn_weights=True and scale_attn_by_inverse_layer_idx=False."
            )
        d_mlp = config.n_inner or 4 * config.n_embd
        heads = config.n_head
        d_head = config.n_embd // heads
        return Layout(
            "gpt2", config.n_layer, heads, heads, config.n_embd, d_head, d_mlp, True, True
        )
    d_head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Layout(
        "llama",
        config.num_hidden_layers,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.hidden_size,
        d_head,
        config.intermediate_size,
        attention_bias=bool(config.attention_bias),
        mlp_bias=bool(config.mlp_bias),
    )


def activation_of(hf: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """What its MLPs apply."""
    config = hf.config
    name = config.activation_function if config.model_type == "gpt2" else config.hidden_act
    if name not in ACTIVATIONS:
        raise CheckpointError(
            f"The activation {name!r} is not supported; supported are {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


def fixed_of(hf: Any, layout: Layout, device: torch.device) -> Fixed:
    """Copies of what is never masked; `hf` is Any because the two classes share no base for it."""

    def copy(tensor: Tensor) -> Tensor:
        return tensor.detach().to(device, torch.float32, copy=True)

    def norm(module: Any) -> Norm:
        bias = getattr(module, "bias", None)
        eps = module.eps if bias is not None else module.variance_epsilon
        return Norm(copy(module.weight), None if bias is None else copy(bias), float(eps))

    body = hf.transformer if layout.architecture == "gpt2" else hf.model
    gpt2 = layout.architecture == "gpt2"
    layers = body.h if gpt2 else body.layers
    names = ("ln_1", "ln_2") if gpt2 else ("input_layernorm", "post_attention_layernorm")
    tokens, output = hf.get_input_embeddings().weight, hf.get_output_embeddings().weight
    embedding = copy(tokens)
    tied = output.data_ptr() == tokens.data_ptr()
    rotary = None
    if not gpt2:
        rotary = Rotary(copy(body.rotary_emb.inv_freq), float(body.rotary_emb.attention_scaling))
    return Fixed(
        embedding=embedding,
        positions=copy(body.wpe.weight) if gpt2 else None,
        rotary=rotary,
        norms=tuple(
            (norm(getattr(layer, names[0])), norm(getattr(layer, names[1]))) for layer in layers
        ),
        final_norm=norm(body.ln_f if gpt2 else body.norm),
        unembedding=embedding if tied else copy(output),
    )
