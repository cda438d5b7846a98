"""A slow transformer to compare the engine with, and small random models to compare them on.

The slow one is written from the definition alone: one prompt at a time, one loop over edges by
*name* for each receiver, parameters by their Hugging Face names. Nothing of the library's layout,
streams or blocks is used, and everything is ordinary autograd, so its gradients can be trusted.
"""

import math
import random
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from discogp_lib.checkpoints import Checkpoint
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.audit import Audit
from discogp_lib.tasks.base import Split, Task, identity

VOCABULARY = 23

# -- small random models ------------------------------------------------------------------------


def random_gpt2(layers: int = 2, heads: int = 3, d_head: int = 4, seed: int = 0, **more: Any):
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        n_embd=heads * d_head,
        n_layer=layers,
        n_head=heads,
        bos_token_id=0,
        eos_token_id=0,
        **more,
    )
    return randomised(GPT2LMHeadModel(config), seed)


def random_llama(
    layers: int = 2, heads: int = 4, kv_heads: int = 2, d_head: int = 4, seed: int = 0, **more: Any
):
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=16,
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=d_head,
        bos_token_id=0,
        eos_token_id=0,
        **more,
    )
    return randomised(LlamaForCausalLM(config), seed)


def randomised(hf: Any, seed: int) -> Any:
    """Every parameter far from its start, norms and biases too, so that each one shows."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in hf.named_parameters():
            values = torch.randn(parameter.shape, generator=noise)
            is_norm = "ln_" in name or "norm" in name
            parameter.copy_(0.3 * values + (is_norm and name.endswith("weight")))
    return hf.eval()


def masked(hf: Any, name: str = "random", sha256: str = "0" * 64) -> MaskedTransformer:
    """The library's model of a Hugging Face model; its tokenizer knows no words."""
    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    return MaskedTransformer(Checkpoint(name, hf, tokenizer, sha256, None))


def random_tokens(batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def random_sheaf(
    model: MaskedTransformer, edge_density: float, weight_density: float, seed: int = 0
) -> Sheaf:
    noise = torch.Generator().manual_seed(seed)
    return Sheaf(
        layout=model.layout,
        model_name=model.name,
        checkpoint_sha256=model.checkpoint_sha256,
        edge_mask=torch.rand(model.graph.n_edges, generator=noise) < edge_density,
        weight_masks={
            name: torch.rand(weight.shape, generator=noise) < weight_density
            for name, weight in model.weights.items()
        },
    )


def make_split(tokens: Tensor, labels: Tensor, targets: Tensor, **more: Tensor) -> Split:
    """Prompts of full length, their own corrupted versions and their target as class, unless
    said otherwise."""
    n, width = tokens.shape
    given = {"corrupted": tokens, "lengths": torch.full((n,), width), "groups": targets, **more}
    prompts = tuple(f"prompt {i}" for i in range(n))
    return Split(prompts=prompts, tokens=tokens, labels=labels, targets=targets, **given)


def make_task(train: Split, dev: Split, test: Split) -> Task:
    audit = Audit("test", *[0] * 7, None, *[0] * 2, 2, *[0.5] * 2, 1, 1.0, 1)
    names = tuple(f"class {g}" for g in range(1 + int(train.groups.max())))
    sha256 = identity([train, dev, test], names, None)
    return Task("planted", "PLANTED", train, dev, test, names, None, audit, sha256)


# -- the slow transformer -----------------------------------------------------------------------


def kept_edges(model: MaskedTransformer, mask: Tensor) -> dict[str, Any]:
    """An edge mask by name."""
    return dict(zip(model.graph.edges, mask, strict=True))


def slow_logits(
    hf: Any,
    tokens: Tensor,
    edges: Mapping[str, Any] | None = None,
    weights: Mapping[str, Tensor] | None = None,
    reference: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Logits (batch, pos, vocab) in float64.

    edges: how much of each edge is kept, by name; all of all by default.
    weights: replace the parameters of these names.
    reference: by sender (batch, pos, d_model), what an edge carries as far as it is cut.
    """
    return torch.stack(
        [
            _Slow(hf, weights).run(
                row, edges, None if reference is None else {s: r[i] for s, r in reference.items()}
            )[0]
            for i, row in enumerate(tokens)
        ]
    )


def slow_outputs(hf: Any, tokens: Tensor) -> dict[str, Tensor]:
    """By sender, what it writes in the full model: (batch, pos, d_model)."""
    rows = [_Slow(hf, None).run(row, None, None)[1] for row in tokens]
    return {sender: torch.stack([row[sender] for row in rows]) for sender in rows[0]}


class _Slow:
    def __init__(self, hf: Any, weights: Mapping[str, Tensor] | None) -> None:
        self.config = hf.config
        self.gpt2 = hf.config.model_type == "gpt2"
        self.values = {name: p.detach().double() for name, p in hf.state_dict().items()}
        for name, weight in (weights or {}).items():
            assert name in self.values
            self.values[name] = weight.double()

    def run(self, tokens, edges, reference):
        """Logits (pos, vocab) of one prompt, and every sender's output."""
        keep = (lambda name: 1.0) if edges is None else edges.__getitem__
        written: dict[str, Tensor] = {}

        def heard(receiver: str) -> Tensor:
            total = torch.zeros(len(tokens), self.values[self.token_table].shape[1]).double()
            for sender, output in written.items():
                share = keep(f"{sender}->{receiver}")
                total = total + share * output
                if reference is not None:
                    total = total + (1 - 1 * share) * reference[sender].double()
            return total

        written["input"] = self.embed(tokens)
        for layer in range(self.config.num_hidden_layers):
            heads = {}
            for head in range(self.config.num_attention_heads):
                heads[f"a{layer}.h{head}"] = self.head(layer, head, heard)
            written.update(heads)
            written[f"m{layer}"] = self.mlp(layer, heard(f"m{layer}"))
        name = "transformer.ln_f" if self.gpt2 else "model.norm"
        return self.norm(name, heard("logits")) @ self.values["lm_head.weight"].T, written

    @property
    def token_table(self) -> str:
        return "transformer.wte.weight" if self.gpt2 else "model.embed_tokens.weight"

    def embed(self, tokens: Tensor) -> Tensor:
        rows = [self.values[self.token_table][int(token)] for token in tokens]
        if self.gpt2:
            rows = [r + self.values["transformer.wpe.weight"][i] for i, r in enumerate(rows)]
        return torch.stack(rows)

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight = self.values[f"{name}.weight"]
        if self.gpt2:
            x = x - x.sum(-1, keepdim=True) / x.shape[-1]
            eps, bias = self.config.layer_norm_epsilon, self.values[f"{name}.bias"]
        else:
            eps, bias = self.config.rms_norm_eps, 0.0
        return x / ((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt() * weight + bias

    def head(self, layer: int, head: int, heard: Any) -> Tensor:
        """Attention of one head: the q, k and v inputs are summed and normed apart."""
        n_heads = self.config.num_attention_heads
        n_kv = n_heads if self.gpt2 else self.config.num_key_value_heads
        kv = head // (n_heads // n_kv)
        kv_name = f"a{layer}.kv{kv}" if n_kv != n_heads else f"a{layer}.h{head}"
        inputs = {
            "q": heard(f"a{layer}.h{head}<q>"),
            "k": heard(f"{kv_name}<k>"),
            "v": heard(f"{kv_name}<v>"),
        }
        if self.gpt2:
            return self.gpt2_head(layer, head, inputs)
        prefix = f"model.layers.{layer}"
        d_head = self.config.head_dim
        parts = {}
        for x, index in (("q", head), ("k", kv), ("v", kv)):
            rows = slice(index * d_head, (index + 1) * d_head)
            normed = self.norm(f"{prefix}.input_layernorm", inputs[x])
            parts[x] = normed @ self.values[f"{prefix}.self_attn.{x}_proj.weight"][rows].T
            bias = self.values.get(f"{prefix}.self_attn.{x}_proj.bias")
            parts[x] = parts[x] if bias is None else parts[x] + bias[rows]
        taken = attention(self.rotate(parts["q"]), self.rotate(parts["k"]), parts["v"])
        columns = slice(head * d_head, (head + 1) * d_head)
        out = taken @ self.values[f"{prefix}.self_attn.o_proj.weight"][:, columns].T
        bias = self.values.get(f"{prefix}.self_attn.o_proj.bias")
        return out if bias is None else out + bias / n_heads

    def gpt2_head(self, layer: int, head: int, inputs: Mapping[str, Tensor]) -> Tensor:
        prefix, d_model = f"transformer.h.{layer}", self.config.n_embd
        d_head = d_model // self.config.n_head
        parts = {}
        for i, x in enumerate("qkv"):
            columns = slice(i * d_model + head * d_head, i * d_model + (head + 1) * d_head)
            weight = self.values[f"{prefix}.attn.c_attn.weight"][:, columns]
            bias = self.values[f"{prefix}.attn.c_attn.bias"][columns]
            parts[x] = self.norm(f"{prefix}.ln_1", inputs[x]) @ weight + bias
        rows = slice(head * d_head, (head + 1) * d_head)
        taken = attention(parts["q"], parts["k"], parts["v"])
        bias = self.values[f"{prefix}.attn.c_proj.bias"] / self.config.n_head
        return taken @ self.values[f"{prefix}.attn.c_proj.weight"][rows] + bias

    def rotate(self, x: Tensor) -> Tensor:
        """Turn the plane of dimensions i and i + half by position x frequency."""
        half = x.shape[1] // 2
        rows = []
        for position, row in enumerate(x):
            turned = [None] * x.shape[1]
            for i in range(half):
                angle = position * self.config.rope_parameters["rope_theta"] ** (-i / half)
                c, s = math.cos(angle), math.sin(angle)
                turned[i] = c * row[i] - s * row[i + half]
                turned[i + half] = s * row[i] + c * row[i + half]
            rows.append(torch.stack(turned))
        return torch.stack(rows)

    def mlp(self, layer: int, x: Tensor) -> Tensor:
        if self.gpt2:
            prefix = f"transformer.h.{layer}"
            x = self.norm(f"{prefix}.ln_2", x)
            x = (
                x @ self.values[f"{prefix}.mlp.c_fc.weight"]
                + self.values[f"{prefix}.mlp.c_fc.bias"]
            )
            inner = (2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)
            x = 0.5 * x * (1 + inner.tanh())
            weight = self.values[f"{prefix}.mlp.c_proj.weight"]
            return x @ weight + self.values[f"{prefix}.mlp.c_proj.bias"]
        prefix = f"model.layers.{layer}"
        x = self.norm(f"{prefix}.post_attention_layernorm", x)

        def linear(name: str, x: Tensor) -> Tensor:
            out = x @ self.values[f"{prefix}.mlp.{name}.weight"].T
            bias = self.values.get(f"{prefix}.mlp.{name}.bias")
            return out if bias is None else out + bias

        gate = linear("gate_proj", x)
        return linear("down_proj", gate / (1 + (-gate).exp()) * linear("up_proj", x))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each position takes from itself and those before it."""
    rows = []
    for position in range(len(q)):
        scores = torch.stack([q[position] @ k[j] for j in range(position + 1)])
        odds = (scores / math.sqrt(q.shape[1])).exp()
        rows.append(sum(odds[j] / odds.sum() * v[j] for j in range(position + 1)))
    return torch.stack(rows)


# -- a model whose circuit is known -------------------------------------------------------------

PLANTED_EDGES = {"input->a0.h0<v>", "a0.h0->a1.h1<v>", "a1.h1->m1", "m1->logits"}


def planted_gpt2() -> Any:
    """A GPT-2 of 2 layers x 2 heads in which only `PLANTED_EDGES` matter to the answer.

    Prompts are x x x end, where x is token 0 or 1, and the answer (token 2 or 3) says which.
    Heads a0.h0 and a1.h1 bring the message forward, looking everywhere alike, and m1 turns it
    into the answer. All other nodes read and write noise: however masked, they know nothing of x.
    Dimensions: 0 content, 1 and 2 the heads' messages, 3 and 4 the answers, 5 the negative of
    content and messages (so that no norm's mean tells anything of them), 6-15 noise.
    """
    # The large epsilon tames the gradient where a receiver hears nothing: 1 / sqrt(epsilon).
    hf = random_gpt2(layers=2, heads=2, d_head=8, n_inner=6, layer_norm_epsilon=0.1)
    noise = torch.Generator().manual_seed(0)
    p = dict(hf.named_parameters())
    with torch.no_grad():
        for name, parameter in p.items():
            parameter.fill_(float("ln_" in name and name.endswith("weight")))
        tokens = p["transformer.wte.weight"]
        tokens[:2, 0], tokens[:2, 5] = torch.tensor([1.0, -1.0]), torch.tensor([-1.0, 1.0])
        tokens[2, 3] = tokens[3, 4] = 1.0
        tokens[4, 6:] = 0.5 * torch.randn(10, generator=noise)
        for layer in range(2):
            for reads, writes in (("attn.c_attn", "attn.c_proj"), ("mlp.c_fc", "mlp.c_proj")):
                for name, part in (
                    (reads, (slice(6, None),)),
                    (writes, (slice(None), slice(6, None))),
                ):
                    weight = p[f"transformer.h.{layer}.{name}.weight"]
                    weight[part] = 0.3 * torch.randn(weight[part].shape, generator=noise)
        for layer, head, reads, writes in ((0, 0, 0, 1), (1, 1, 1, 2)):
            attention = p[f"transformer.h.{layer}.attn.c_attn.weight"].view(16, 3, 2, 8)
            attention[:, :, head] = 0
            attention[reads, 2, head] = 1.0
            out = p[f"transformer.h.{layer}.attn.c_proj.weight"].view(2, 8, 16)
            out[head] = 0
            out[head, :, writes], out[head, :, 5] = 0.2, -0.2
        p["transformer.h.1.mlp.c_fc.weight"].zero_()
        p["transformer.h.1.mlp.c_fc.weight"][2] = torch.tensor([2.0, 2, 2, -2, -2, -2])
        p["transformer.h.1.mlp.c_proj.weight"].zero_()
        p["transformer.h.1.mlp.c_proj.weight"][:3, 3] = 2.0
        p["transformer.h.1.mlp.c_proj.weight"][3:, 4] = 2.0
    return hf


def planted_task(n: int = 48) -> Task:
    """Which token the prompt repeats; the corrupted prompt repeats the other one."""
    x = torch.arange(n) % 2
    tokens, corrupted = (
        torch.cat([one[:, None].expand(-1, 3), torch.full((n, 1), 4)], dim=1) for one in (x, 1 - x)
    )
    split = make_split(tokens, torch.tensor([[2, 3]]).repeat(n, 1), x, corrupted=corrupted)
    return make_task(split, split, split)


def planted_pointer(seed: int, layers: int = 3, heads: int = 4) -> tuple[Any, set[str]]:
    """A GPT-2 in which one head finds the marked token, and one MLP says which it was.

    Prompts are five tokens, each of content 0 or 1, one of them marked, and an end; the answer is
    the content of the marked one. Where head and MLP sit is drawn from the seed. The head's query
    reads the end, its key the mark and its value the content; without any of the three it only
    averages. All other nodes read and write noise that is the same whatever the content.
    Dimensions in pairs of opposite sign, so that no norm's mean tells anything: 0 content, 2 mark,
    4 end, 6 message; 8 and 9 the answers; 10-15 noise.
    Gives the model and the five edges that matter.
    """
    noise, draw = torch.Generator().manual_seed(seed), random.Random(seed)
    layer, head = draw.randrange(layers), draw.randrange(heads)
    mlp = draw.randrange(layer, layers)
    width = 16 // heads
    hf = random_gpt2(layers=layers, heads=heads, d_head=width, n_inner=8)
    p = {name.removeprefix("transformer."): value for name, value in hf.named_parameters()}
    with torch.no_grad():
        for name, parameter in p.items():
            parameter.fill_(float("ln_" in name and name.endswith("weight")))
        tokens = p["wte.weight"]  # contents 0 and 1, the same marked, end, the answers
        for token, pair, sign in (
            (0, 0, -1),
            (1, 0, 1),
            (2, 0, -1),
            (3, 0, 1),
            (2, 2, 1),
            (3, 2, 1),
            (4, 4, 1),
        ):
            tokens[token, pair], tokens[token, pair + 1] = sign, -sign
        tokens[5, 8] = tokens[6, 9] = 1.0
        tokens[:4, 10:] = 0.5 * torch.randn(6, generator=noise)
        tokens[4, 10:] = 0.5 * torch.randn(6, generator=noise)
        for i in range(layers):
            for reads, writes in (("attn.c_attn", "attn.c_proj"), ("mlp.c_fc", "mlp.c_proj")):
                into, out = p[f"h.{i}.{reads}.weight"], p[f"h.{i}.{writes}.weight"]
                into[10:] = 0.3 * torch.randn(into[10:].shape, generator=noise)
                out[:, 10:] = 0.3 * torch.randn(out[:, 10:].shape, generator=noise)
        attention = p[f"h.{layer}.attn.c_attn.weight"].view(16, 3, heads, width)
        attention[:, :, head] = 0
        attention[4, 0, head], attention[2, 1, head], attention[0, 2, head] = 2.0, 2.0, 1.0
        message = p[f"h.{layer}.attn.c_proj.weight"].view(heads, width, 16)
        message[head] = 0
        message[head, :, 6], message[head, :, 7] = 0.4, -0.4
        for name in ("c_fc", "c_proj"):
            p[f"h.{mlp}.mlp.{name}.weight"].zero_()
        p[f"h.{mlp}.mlp.c_fc.weight"][6] = torch.tensor([2.0] * 4 + [-2.0] * 4)
        p[f"h.{mlp}.mlp.c_proj.weight"][:4, 9] = 2.0
        p[f"h.{mlp}.mlp.c_proj.weight"][4:, 8] = 2.0
        # A constant part: else the last norm would blow up the faintest message to certainty.
        p[f"h.{mlp}.mlp.c_proj.bias"][6:8] = torch.tensor([3.0, -3.0])
    into_head = {f"input->a{layer}.h{head}<{part}>" for part in "qkv"}
    return hf, into_head | {f"a{layer}.h{head}->m{mlp}", f"m{mlp}->logits"}


def pointer_task(n: int = 96, length: int = 5) -> Task:
    """Which content the marked token has."""

    def split(seed: int) -> Split:
        generator = torch.Generator().manual_seed(seed)
        contents = torch.randint(0, 2, (n, length), generator=generator)
        marked = torch.randint(0, length, (n,), generator=generator)
        answers = torch.arange(n) % 2
        contents[torch.arange(n), marked] = answers + 2
        tokens = torch.cat([contents, torch.full((n, 1), 4)], dim=1)
        return make_split(tokens, torch.tensor([[5, 6]]).repeat(n, 1), answers)

    return make_task(split(0), split(1), split(2))
