"""The bridge to TransformerLens: its tools (caches, hooks, patching) inside a sheaf.

The only module that imports transformer_lens. Weight masks become zeros in the bridge's own copy
of the checkpoint. Edge masks become hooks on TransformerLens' hook points: whatever a receiver
would read from the residual stream is replaced by the sum of what its kept senders wrote.
Nothing of the engine in `model.py` takes part, so the two can be held against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from discogp_lib.checkpoints import Checkpoint, load_checkpoint
from discogp_lib.errors import ConfigError, SheafError
from discogp_lib.hf_directory import quiet_transformers

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformer_lens.model_bridge import TransformerBridge

    from discogp_lib.graph import Graph, Group
    from discogp_lib.model import MaskedTransformer
    from discogp_lib.sheaf import Sheaf


def lens_model(model: MaskedTransformer, sheaf: Sheaf) -> TransformerBridge:
    """A TransformerLens bridge of the model's checkpoint that runs under the sheaf.

    The caller's model is not touched. Cut edges carry zero; other ablations are not offered. The
    hooks that cut are permanent: `reset_hooks()` leaves them in place.

    Where edges are cut, `hook_q_input`, `hook_k_input` and `hook_v_input` (one per head, or per
    key/value head), `hook_mlp_in` and `ln_final.hook_in` hold the masked sums. Patches there, to
    `attn.hook_result`, to `hook_mlp_out` and inside heads and MLPs reach whoever reads them. But
    receivers read senders, not the residual stream: patches to `hook_attn_out`, `hook_resid_post`
    and all but the first `hook_resid_pre` reach nobody. A head also sends its equal share of its
    layer's output bias, which `attn.hook_result` does not show. `enable_compatibility_mode()`
    moves biases between nodes, so leave it off. For "smollm2-135m" give tokens, not text: its
    prompts start with another token than its tokenizer's BOS.
    """
    sheaf.check_fits(model)
    if sheaf.ablation != "zero" and not sheaf.keeps_all_edges:
        raise SheafError(
            f"This sheaf was found under {sheaf.ablation} ablation, but in a TransformerLens "
            "bridge cut edges carry zero; give one found under zero ablation."
        )
    checkpoint = load_checkpoint(model.name)
    sheaf.check_same_model(model.layout, checkpoint.sha256, model.name)
    bridge = _boot(checkpoint, model, sheaf)
    if not sheaf.keeps_all_edges:
        bridge.set_use_split_qkv_input(True)
        bridge.set_use_hook_mlp_in(True)
        bridge.set_use_attn_result(True)
        _Written(bridge, model.graph).cut(sheaf.edge_mask)
    return bridge


def _boot(checkpoint: Checkpoint, model: MaskedTransformer, sheaf: Sheaf) -> TransformerBridge:
    """The bridge of the checkpoint with the sheaf's weights.

    Text gets the model's BOS where that is the tokenizer's own, and otherwise none.
    """
    from transformer_lens.model_bridge import TransformerBridge

    hf: Any = checkpoint.model
    with torch.no_grad():
        for name, mask in sheaf.weight_masks.items():
            hf.get_parameter(name).mul_(mask)
    with quiet_transformers():
        bridge = TransformerBridge.boot_transformers(
            model.name,
            hf_model=hf.to(model.device),
            tokenizer=checkpoint.tokenizer,
            device=model.device,
            dtype=torch.float32,
        )
    own_bos = bridge.tokenizer.bos_token_id
    bridge.cfg.default_prepend_bos = model.bos is not None and model.bos == own_bos
    return bridge


class _Written:
    """What the senders of the running pass have written so far, in the graph's order.

    Senders are noted after all other hooks of their hook point, so that what a user patches there
    is what later receivers read: before each pass the noting hooks are put last again.
    """

    def __init__(self, bridge: TransformerBridge, graph: Graph) -> None:
        self.bridge, self.graph = bridge, graph
        self.outputs: list[Tensor] = []
        self.handles: list[RemovableHandle] = []
        bridge.blocks[0].register_forward_pre_hook(self._start)

    def _start(self, block: Any, arguments: object) -> None:
        if getattr(block, "_start_at_layer_idx", None):
            raise ConfigError(
                "A bridge under a sheaf that cuts edges cannot start_at_layer: what the senders "
                "before it wrote is not known; run it from the tokens."
            )
        for handle in self.handles:
            handle.remove()
        self.outputs.clear()
        self.handles = [block.hook_in.register_forward_hook(self._note)]
        for layer in self.bridge.blocks:
            self.handles += [
                layer.attn.hook_result.register_forward_hook(self._note_heads(layer.attn)),
                layer.mlp.hook_out.register_forward_hook(self._note),
            ]

    def _note(self, module: object, arguments: object, output: Tensor) -> None:
        self.outputs.append(output.unsqueeze(-2))

    def _note_heads(self, attention: Any) -> Callable[[object, object, Tensor], None]:
        """Heads with their equal shares of the output bias, as in our graph."""
        bias = getattr(attention.o.original_component, "bias", None)
        share = 0.0 if bias is None else bias / self.graph.n_heads

        def note(module: object, arguments: object, output: Tensor) -> None:
            self.outputs.append(output + share)

        return note

    def cut(self, edge_mask: Bool[Tensor, " edge"]) -> None:
        """Make every receiver read only the senders that the mask keeps."""
        n_heads, n_kv_heads = self.graph.n_heads, self.graph.n_kv_heads
        for group in self.graph.groups:
            if group.kind == "logits":
                points = {"ln_final.hook_in": group}
            elif group.kind == "mlp":
                points = {f"blocks.{group.layer}.hook_mlp_in": group}
            else:
                attention, keys, values = (
                    f"blocks.{group.layer}.attn",
                    n_heads,
                    n_heads + n_kv_heads,
                )
                points = {
                    f"{attention}.hook_q_input": group.part(0, keys),
                    f"{attention}.hook_k_input": group.part(keys, values),
                    f"{attention}.hook_v_input": group.part(values, values + n_kv_heads),
                }
            for name, part in points.items():
                self.bridge.add_perma_hook(name, self._reader(part, part.matrix(edge_mask)))

    def _reader(self, group: Group, kept: Bool[Tensor, "receiver sender"]) -> Callable[..., Tensor]:
        def read(stream: Float[Tensor, "batch pos *receiver d_model"], hook: object) -> Tensor:
            written = torch.cat(self.outputs, dim=-2)
            if group.kind == "logits":
                self.outputs.clear()
            return torch.einsum("rs,bpsd->bprd", kept.to(stream), written).reshape(stream.shape)

        return read
