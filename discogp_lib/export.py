"""Writing a sheaf so that it works without the model it was cut from.

`export` writes one file for `discogp_lib/standalone.py`: the kept weights of live nodes, the kept
edges, the norms, and of embedding and unembedding only the rows that the task needs. The file is
a safetensors file with one JSON description and a hash over its every byte.

A sheaf that cuts weights but no edges is simpler than that: an ordinary checkpoint with zeros,
which `export_checkpoint` writes and transformers loads.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers
from jaxtyping import Bool, Float, UInt8
from safetensors.torch import save
from torch import Tensor

from discogp_lib.architecture import ACTIVATIONS
from discogp_lib.checkpoints import load_checkpoint
from discogp_lib.errors import SheafError
from discogp_lib.hf_directory import quiet_transformers
from discogp_lib.layout import Block, Layout
from discogp_lib.model import MaskedTransformer
from discogp_lib.paths import atomic_path
from discogp_lib.standalone import FORMAT, PIECES, UNSIGNED
from discogp_lib.standalone import load as load_standalone
from discogp_lib.tasks import load_task
from discogp_lib.tasks.encode import tokenize

if TYPE_CHECKING:
    from discogp_lib.sheaf import Sheaf
    from discogp_lib.tasks.base import Split, Task

Fields = dict[str, tuple[Tensor, Tensor]]
"""A node's weights by name: values and masks."""


def export(
    sheaf: Sheaf,
    path: str | Path,
    model: MaskedTransformer,
    *,
    task: Task | None = None,
    all_rows: bool = False,
) -> Path:
    """Write the sheaf as one file that `standalone.py` runs alone; returns the path.

    task: whose prompts the file is for; by default the one that the sheaf was found on.
    all_rows: the embedding of every token instead of the task's. The file then knows, beside the
        words of the task, every word that is a single token.
    """
    sheaf.check_fits(model)
    if sheaf.ablation != "zero":
        raise SheafError(
            f"This sheaf was found under {sheaf.ablation} ablation: its cut edges carry values of "
            "the full model, so it cannot work without it; export one found under zero ablation."
        )
    task = _own_task(sheaf, model) if task is None else task
    pruned = sheaf.pruned()
    splits = (task.train, task.dev, task.test)
    ids = range(model.vocabulary_size) if all_rows else _needed_tokens(splits)
    nodes, tensors = _pack_nodes(pruned, model)
    tensors |= _fixed_tensors(model, list(ids), max(s.tokens.shape[1] for s in splits), all_rows)
    words = known_words(model, splits) | (_single_tokens(model, splits[0]) if all_rows else {})
    about: dict[str, Any] = {
        "format": FORMAT,
        "sha256": UNSIGNED.decode(),
        "model": model.name,
        "checkpoint_sha256": model.checkpoint_sha256,
        "task": task.name,
        "task_sha256": task.sha256,
        "method": sheaf.metadata.get("method"),
        "seed": sheaf.metadata.get("seed"),
        "shape": _shape(model),
        "bos": model.bos,
        "words": words,
        "labels": _labels(model, task),
        "labels_in_prompt": all(map(_labels_in_prompts, splits)),
        "nodes": nodes,
        "edges": _edges_by_receiver(pruned),
    }
    data = save(tensors, metadata={"standalone": json.dumps(about, ensure_ascii=True)})
    signature = hashlib.sha256(data).hexdigest().encode()
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.replace(UNSIGNED, signature, 1))
        _check_words(temporary, splits)
    return Path(path)


def _own_task(sheaf: Sheaf, model: MaskedTransformer) -> Task:
    """The task that the sheaf's metadata name."""
    name, seed = sheaf.metadata.get("task"), sheaf.metadata.get("seed", 0)
    if name is None:
        raise SheafError("The sheaf does not say which task it is for; give it with task=...")
    task = load_task(name, model, seed=seed)
    if sheaf.metadata.get("task_sha256") not in (None, task.sha256):
        raise SheafError(
            f"The sheaf was found on other prompts of {name!r} than load_task makes with its seed "
            f"{seed}; give the task it was found on with task=..., or search again."
        )
    return task


# -- the network ----------------------------------------------------------------------------------


def _shape(model: MaskedTransformer) -> dict[str, Any]:
    """What the runtime must know beside the weights."""
    layout, fixed = model.layout, model.fixed
    (eps,) = {norm.eps for pair in fixed.norms for norm in pair} | {fixed.final_norm.eps}
    activation = next(name for name, f in ACTIVATIONS.items() if f is model.activation)
    return {
        "architecture": layout.architecture,
        "n_layers": layout.n_layers,
        "n_heads": layout.n_heads,
        "n_kv_heads": layout.n_kv_heads,
        "d_head": layout.d_head,
        "activation": "gelu_new" if activation == "gelu_pytorch_tanh" else activation,
        "eps": eps,
        "rotary_scaling": 1.0 if fixed.rotary is None else fixed.rotary.scaling,
    }


def _edges_by_receiver(sheaf: Sheaf) -> dict[str, list[str]]:
    """Senders by receiver; keys and values are always named after their group."""
    edges: dict[str, list[str]] = {}
    for name in sheaf.edges:
        sender, _, receiver = name.partition("->")
        if receiver.endswith(("<k>", "<v>")):
            receiver = receiver.replace(".h", ".kv")
        edges.setdefault(receiver, []).append(sender)
    return edges


def _pack_nodes(
    sheaf: Sheaf, model: MaskedTransformer
) -> tuple[dict[str, dict[str, list[int]]], dict[str, Tensor]]:
    """Shapes of every live node's weights; its mask, packed, and all kept values in one row."""
    described: dict[str, dict[str, list[int]]] = {}
    tensors: dict[str, Tensor] = {}
    values = []
    for node, fields in _live_nodes(sheaf, model):
        described[node] = {name: list(mask.shape) for name, (_, mask) in fields.items()}
        mask = torch.cat([mask.flatten() for _, mask in fields.values()])
        tensors[node] = _pack(mask)
        values.append(torch.cat([value.flatten() for value, _ in fields.values()])[mask])
    tensors["values"] = torch.cat([torch.zeros(0), *values])
    return described, tensors


def _pack(mask: Bool[Tensor, " weight"]) -> UInt8[Tensor, " byte"]:
    """A mask as compressed bits, as the runtime unpacks it."""
    packed = zlib.compress(np.packbits(mask.numpy()).tobytes())
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def _live_nodes(sheaf: Sheaf, model: MaskedTransformer) -> Iterator[tuple[str, Fields]]:
    """Every node that a kept edge of the pruned sheaf reads, with its weights."""
    layout = sheaf.layout
    live = layout.graph.live_senders(sheaf.edge_mask)
    on_cpu = {name: weight.cpu() for name, weight in model.weights.items()}
    for layer in range(layout.n_layers):
        weights = layout.block(on_cpu, layer)
        masks = layout.block(sheaf.weight_masks, layer)
        first = layout.graph.head(layer, 0)
        heads = live[first : first + layout.n_heads]
        for i in heads.nonzero().flatten().tolist():
            yield f"a{layer}.h{i}", _head_fields(layout, weights, masks, i)
        groups = heads.unflatten(0, (layout.n_kv_heads, -1)).any(1)
        for i in groups.nonzero().flatten().tolist():
            yield f"a{layer}.kv{i}", _fields(weights, masks, ("w_k", "b_k", "w_v", "b_v"), i)
        if live[layout.graph.mlp(layer)]:
            yield f"m{layer}", _mlp_fields(weights, masks)


def _fields(
    weights: Block, masks: Block, names: Iterable[str], index: int | slice = slice(None)
) -> Fields:
    """Some of a block's weights with their masks; what the architecture lacks is left out."""
    found = {name: (getattr(weights, name), getattr(masks, name)) for name in names}
    return {n: (w[index], mask[index]) for n, (w, mask) in found.items() if w is not None}


def _head_fields(layout: Layout, weights: Block, masks: Block, head: int) -> Fields:
    """A head's own weights; of the layer's output bias it writes its share."""
    fields = _fields(weights, masks, ("w_q", "b_q", "w_o"), head)
    if weights.b_o is not None and masks.b_o is not None:
        fields["b_o"] = (weights.b_o / layout.n_heads, masks.b_o)
    return fields


def _mlp_fields(weights: Block, masks: Block) -> Fields:
    """An MLP without its dead neurons: those that nothing is left of after pruning."""
    alive = masks.w_out.any(1)
    fields = _fields(weights, masks, ("w_in", "b_in", "w_gate", "b_gate"), slice(None))
    fields = {n: (w[..., alive], mask[..., alive]) for n, (w, mask) in fields.items()}
    fields["w_out"] = (weights.w_out[alive], masks.w_out[alive])
    return fields | _fields(weights, masks, ("b_out",))


def _fixed_tensors(
    model: MaskedTransformer, ids: Sequence[int], longest: int, all_rows: bool
) -> dict[str, Tensor]:
    """What is never masked, as far as it is needed."""
    fixed = model.fixed
    norms = [norm for pair in fixed.norms for norm in pair] + [fixed.final_norm]
    tensors = {"norms": torch.stack([norm.weight for norm in norms])}
    if norms[0].bias is not None:
        tensors["shifts"] = torch.stack([norm.bias for norm in norms if norm.bias is not None])
    if fixed.positions is not None:
        tensors["positions"] = fixed.positions[: None if all_rows else longest].clone()
    if fixed.rotary is not None:
        tensors["frequencies"] = fixed.rotary.frequencies
    rows = torch.tensor(ids)
    tensors |= {"tokens": rows, "embedding": fixed.embedding[rows]}
    if fixed.unembedding is not fixed.embedding:
        tensors["unembedding"] = fixed.unembedding[rows]
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


# -- the words ------------------------------------------------------------------------------------


def _needed_tokens(splits: Iterable[Split]) -> list[int]:
    """All tokens of a task's prompts and label sets."""
    found: set[int] = set()
    for split in splits:
        for prompt, length in zip(split.tokens.tolist(), split.lengths.tolist(), strict=True):
            found.update(prompt[:length])
        found.update(split.labels.flatten().tolist())
    return sorted(found)


def _labels(model: MaskedTransformer, task: Task) -> list[tuple[int, str]]:
    """Every token that is a label of some prompt, and the word that it stands for."""
    if task.label_words is not None:
        return list(zip(task.test.labels[0].tolist(), task.label_words, strict=True))
    splits = (task.train, task.dev, task.test)
    ids = sorted({token for split in splits for token in split.labels.flatten().tolist()})
    return [(token, str(model.tokenizer.decode([token])).strip()) for token in ids]


def _labels_in_prompts(split: Split) -> bool:
    """Whether every label of every prompt is one of its tokens, as the names of IOI are."""
    padded = torch.arange(split.tokens.shape[1]) >= split.lengths[:, None]
    tokens = split.tokens.masked_fill(padded, -1)
    return bool((split.labels[:, :, None] == tokens[:, None, :]).any(2).all())


def known_words(model: MaskedTransformer, splits: Iterable[Split]) -> dict[str, list[int]]:
    """Token ids of every word of the prompts, as the tokenizer reads it there.

    The runtime has no tokenizer. It splits a prompt at spaces and punctuation and looks the pieces
    up; that this gives the very tokens of the task is checked for every prompt after writing.
    """
    prompts = sorted({prompt for split in splits for prompt in split.prompts})
    encoded = model.tokenizer(prompts, add_special_tokens=False, return_offsets_mapping=True)
    words: dict[str, list[int]] = {}
    for prompt, ids, offsets in zip(
        prompts, encoded["input_ids"], encoded["offset_mapping"], strict=True
    ):
        # A tokenizer may leave the space before a word out of its span, so spans go by their ends.
        for match in PIECES.finditer(prompt):
            inside = [match.start() < end <= match.end() for _, end in offsets]
            words[match[0]] = [token for token, here in zip(ids, inside, strict=True) if here]
    return words


def _single_tokens(model: MaskedTransformer, split: Split) -> dict[str, list[int]]:
    """Every word that is one token where it follows a prompt."""
    prompt = split.prompts[0]
    (start,) = tokenize([prompt], model)
    decoded = [str(model.tokenizer.decode([token])) for token in range(model.vocabulary_size)]
    texts = sorted({t for text in decoded for t in (text, f" {text}") if PIECES.fullmatch(t)})
    read = tokenize([prompt + text for text in texts], model)
    unknown = model.tokenizer.unk_token_id
    return {
        text: [ids[-1]]
        for text, ids in zip(texts, read, strict=True)
        if ids[:-1] == start and ids[-1] != unknown
    }


def _check_words(path: Path, splits: Iterable[Split]) -> None:
    """Raise unless the runtime reads every prompt of the task as the tokenizer does."""
    runtime = load_standalone(path)
    for split in splits:
        for row, prompt in enumerate(split.prompts):
            if runtime.encode(prompt) != split.tokens[row, : split.lengths[row]].tolist():
                raise SheafError(
                    f"The prompt {prompt!r} cannot be read word by word with this tokenizer, so "
                    "the sheaf cannot be exported for a runtime without one."
                )


# -- weights only: an ordinary checkpoint ---------------------------------------------------------


def export_checkpoint(sheaf: Sheaf, directory: str | Path, model: MaskedTransformer) -> Path:
    """Write a sheaf that cuts no edges as a Hugging Face directory with zeros in the weights."""
    sheaf.check_fits(model)
    directory = Path(directory)
    if not sheaf.keeps_all_edges:
        raise SheafError(
            f"This sheaf cuts {sheaf.n_edges - sheaf.kept_edges:,} edges, which no ordinary "
            "checkpoint can express; export it with sheaf.export(path, model) instead."
        )
    if directory.exists():
        raise SheafError(f"{directory} exists already; name a directory that does not.")
    checkpoint = load_checkpoint(model.name)
    sheaf.check_same_model(model.layout, checkpoint.sha256, model.name)
    with torch.no_grad():
        for name, parameter in checkpoint.model.named_parameters():
            if name in sheaf.weight_masks:
                parameter.mul_(sheaf.weight_masks[name])
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    try:
        with quiet_transformers():
            checkpoint.model.save_pretrained(temporary)
            checkpoint.tokenizer.save_pretrained(temporary)
        os.chmod(temporary, 0o755)
        os.rename(temporary, directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory


@torch.no_grad()
def transformers_logits(directory: str | Path, split: Split) -> Float[Tensor, "prompt vocab"]:
    """Logits after each prompt by transformers alone, with nothing of this library's engine."""
    with quiet_transformers():
        hf = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32
        ).eval()
    found = []
    for batch in split.batches(32):
        logits = hf(batch.tokens).logits
        found.append(logits[torch.arange(len(batch)), batch.lengths - 1])
    return torch.cat(found)
