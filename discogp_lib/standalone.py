"""Run a sheaf that stands alone: this one file, torch and safetensors, nothing else.

    python standalone.py ioi.standalone "When Mary and John went to the store, John gave a drink to"

The file given (written by `Sheaf.export`) holds what the sheaf keeps: the weights of its live
nodes, its edges, the norms, and the rows of the embedding for the task's words. Only live nodes
are computed. A file that is cut short, altered or of another kind is refused in one sentence.
"""

import argparse
import hashlib
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load as parse_tensors
from torch import Tensor

FORMAT = "discogp-standalone/1"
UNSIGNED = b"unsigned".ljust(64)  # stands in place of the file's own hash while it is hashed
PIECES = re.compile(r"\s?[^\s.,;:!?]+|\s?[.,;:!?]+|\s")  # words with their space, punctuation
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}


class StandaloneError(Exception):
    """The file or the prompt cannot be used; told in one sentence."""


@dataclass(frozen=True)
class Standalone:
    """A sheaf, ready to answer."""

    about: dict[str, Any]  # where the sheaf comes from, the words it knows, its task's labels
    shape: dict[str, Any]  # n_layers, n_heads, n_kv_heads, d_head, activation, eps, and so on
    edges: dict[str, list[str]]  # by receiver (a3.h0<q>, a3.kv0<k>, m3, logits), what it hears
    nodes: dict[str, dict[str, Tensor]]  # by live node (heads a3.h0, shared a3.kv0, m3), weights
    tensors: dict[str, Tensor]  # norms, positions or rotary frequencies, embedding
    rows: dict[int, int]  # the row of each token id in the embedding and in the logits

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt made of words that the file knows."""
        words, pieces = self.about["words"], PIECES.findall(prompt)
        if unknown := [piece.strip() for piece in pieces if piece not in words]:
            raise StandaloneError(
                f"This sheaf was exported for the task {self.about['task']!r} and does not know "
                f"{', '.join(map(repr, unknown))} (at that place); use the words of its task."
            )
        start = [] if self.about["bos"] is None else [self.about["bos"]]
        return start + [token for piece in pieces for token in words[piece]]

    def answer(self, prompt: str) -> list[tuple[str, float]]:
        """The task's label words with their probabilities, the likeliest first.

        Where the labels of the task are words of the prompt (the names of IOI), only those count.
        """
        tokens, labels = self.encode(prompt), self.about["labels"]
        if self.about["labels_in_prompt"]:
            labels = [label for label in labels if label[0] in tokens] or labels
        logits = self.logits(tokens)[[self.rows[token] for token, _ in labels]]
        odds = zip((word for _, word in labels), logits.softmax(-1).tolist(), strict=True)
        return sorted(odds, key=lambda pair: -pair[1])

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Logits (row) after the last token, one for each row of the embedding."""
        positions = self.tensors.get("positions")
        most = math.inf if positions is None else len(positions)
        if not 0 < len(tokens) <= most:
            raise StandaloneError(f"The prompt has {len(tokens)} tokens; 1 to {most} are possible.")
        if strangers := [token for token in tokens if token not in self.rows]:
            raise StandaloneError(f"The file has no rows for the tokens {strangers}.")
        start = self.tensors["embedding"][[self.rows[token] for token in tokens]]
        written = {"input": start if positions is None else start + positions[: len(tokens)]}
        for layer in range(self.shape["n_layers"]):
            written |= self._heads(layer, written)
            if f"m{layer}" in self.nodes:
                written[f"m{layer}"] = self._mlp(layer, written)
        final = self._hear("logits", 2 * self.shape["n_layers"], written)[-1:]
        return (final @ self.tensors.get("unembedding", self.tensors["embedding"]).T)[0]

    def _hear(self, receiver: str, norm: int, written: dict[str, Tensor]) -> Tensor:
        """The normed sum (pos, d_model) of the senders that a receiver hears."""
        heard = [written[sender] for sender in self.edges.get(receiver, [])]
        total = torch.stack(heard).sum(0) if heard else torch.zeros_like(written["input"])
        weight, eps, size = self.tensors["norms"][norm], self.shape["eps"], total.shape[1:]
        if self.shape["architecture"] == "llama":
            return torch.rms_norm(total, size, weight, eps)
        return torch.layer_norm(total, size, weight, self.tensors["shifts"][norm], eps)

    def _heads(self, layer: int, written: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the live heads of a layer write; keys and values once per group of heads."""

        def project(node: str, kind: str) -> Tensor:
            w, heard = self.nodes[node], self._hear(f"{node}<{kind}>", 2 * layer, written)
            return heard @ w[f"w_{kind}"] + w.get(f"b_{kind}", 0)

        shared, outputs, n = {}, {}, self.shape["n_heads"]  # (keys, values) by group
        groups = [f"a{layer}.kv{i * self.shape['n_kv_heads'] // n}" for i in range(n)]
        for head, group in zip([f"a{layer}.h{i}" for i in range(n)], groups, strict=True):
            if head in self.nodes:
                if group not in shared:
                    shared[group] = self._rotate(project(group, "k")), project(group, "v")
                keys, values = shared[group]
                scores = self._rotate(project(head, "q")) @ keys.T / self.shape["d_head"] ** 0.5
                later = torch.ones_like(scores, dtype=torch.bool).triu(1)
                taken = scores.masked_fill(later, -math.inf).softmax(-1) @ values
                w = self.nodes[head]
                outputs[head] = taken @ w["w_o"] + w.get("b_o", 0)
        return outputs

    def _rotate(self, x: Tensor) -> Tensor:
        """Rotary positions of (pos, d_head), where the model has them."""
        if self.shape["architecture"] == "gpt2":
            return x
        angles = torch.outer(torch.arange(len(x)).float(), self.tensors["frequencies"]).repeat(1, 2)
        first, second = x.chunk(2, -1)
        turned = x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()
        return turned * self.shape["rotary_scaling"]

    def _mlp(self, layer: int, written: dict[str, Tensor]) -> Tensor:
        """What an MLP writes."""
        w, x = self.nodes[f"m{layer}"], self._hear(f"m{layer}", 2 * layer + 1, written)
        activation, inner = ACTIVATIONS[self.shape["activation"]], x @ w["w_in"] + w.get("b_in", 0)
        gated = self.shape["architecture"] == "llama"
        gate = activation(x @ w["w_gate"] + w.get("b_gate", 0) if gated else inner)
        return (gate * inner if gated else gate) @ w["w_out"] + w.get("b_out", 0)


def load(path: str | Path) -> Standalone:
    """Read a file written by `Sheaf.export`; everything in it is checked before it is used."""
    try:
        data = Path(path).read_bytes()
        return _build(_describe(data), data)
    except OSError as error:
        raise StandaloneError(f"{path} cannot be read ({error.strerror}).") from None
    except StandaloneError as error:
        raise StandaloneError(f"{path} {error}; export the sheaf again.") from None
    except Exception as error:  # with a right hash: a file that was made to mislead
        wrong = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise StandaloneError(
            f"{path} holds no sheaf that runs ({wrong}); do not use it."
        ) from None


def _check(right: bool, wrong: str) -> None:
    if not right:
        raise StandaloneError(wrong)


def _describe(data: bytes) -> dict[str, Any]:
    """What a file says of itself, if its every byte is as it was written."""
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        about = json.loads(json.loads(data[8:end])["__metadata__"]["standalone"])
        known, signature = about["format"], about["sha256"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StandaloneError("is not a standalone sheaf, or is damaged") from None
    _check(known == FORMAT, f"is of the format {known!r}, not {FORMAT!r}")
    unsigned = data[:end].replace(signature, UNSIGNED) + data[end:]
    right = hashlib.sha256(unsigned).hexdigest().encode() == signature
    _check(right, "was altered or cut short: its hash does not match")
    return about


def _build(about: dict[str, Any], data: bytes) -> Standalone:
    """The sheaf in a file, tried on one token.

    The hash says that the file is as it was written, not that a sensible program wrote it. So
    whatever does not fit (names, shapes, numbers) must show here and not in the middle of use.
    """
    tensors, shape = parse_tensors(data), about["shape"]
    _check(shape["architecture"] in ("gpt2", "llama"), "is of an unknown architecture")
    _check(0 < shape["n_kv_heads"] <= shape["n_heads"] < 4096, "has an impossible number of heads")
    _check(len(tensors["norms"]) == 2 * shape["n_layers"] + 1, "lacks norms")
    ids, nodes = tensors["tokens"].tolist(), _unpack_nodes(about["nodes"], tensors)
    rows = {token: row for row, token in enumerate(ids)}
    sheaf = Standalone(about, shape, about["edges"], nodes, tensors, rows)
    known = {token for word in about["words"].values() for token in word}
    known |= {token for token, _ in about["labels"]} | ({about["bos"]} - {None})
    heard = {sender for senders in sheaf.edges.values() for sender in senders}
    finite = all(bool(t.isfinite().all()) for t in [*tensors.values(), sheaf.logits(ids[:1])])
    _check(len(rows) == len(tensors["embedding"]), "has token ids and rows that do not fit")
    _check(rows.keys() >= known, "has words or labels without their rows")
    _check(heard <= nodes.keys() | {"input"}, "has edges from nodes that it does not hold")
    _check(finite and {"task", "labels_in_prompt"} <= about.keys(), "lacks numbers or names")
    return sheaf


def _unpack_nodes(
    described: dict[str, dict[str, list[int]]], tensors: dict[str, Tensor]
) -> dict[str, dict[str, Tensor]]:
    """Dense weights of each node: a packed mask apiece, the kept values in one row for all."""
    nodes, values, start = {}, tensors["values"], 0
    for node, shapes in described.items():
        sizes = [math.prod(shape) for shape in shapes.values()]
        mask = _unpack(tensors[node], sum(sizes))
        kept = int(mask.sum())
        dense = torch.zeros(len(mask)).masked_scatter_(mask, values[start : start + kept])
        parts = zip(shapes.items(), dense.split(sizes), strict=True)
        nodes[node] = {name: part.view(shape) for (name, shape), part in parts}
        start += kept
    _check(start == len(values), "does not hold as many weights as its masks keep")
    return nodes


def _unpack(packed: Tensor, n: int) -> Tensor:
    """A mask of n bits; never expands to more, whatever the bytes say."""
    _check(packed.dtype == torch.uint8 and 0 < n < 1 << 28, "has a mask that cannot be")
    try:
        data = zlib.decompressobj().decompress(bytes(packed.tolist()), (n + 7) // 8 + 1)
    except zlib.error:
        data = b""
    _check(len(data) == (n + 7) // 8, f"has a mask that does not have {n:,} entries")
    octets = torch.frombuffer(bytearray(data), dtype=torch.uint8).unsqueeze(1)
    return (octets >> torch.arange(7, -1, -1, dtype=torch.uint8) & 1).flatten()[:n].bool()


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer prompts; what is wrong with a file or a prompt is one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="standalone", description=__doc__.partition("\n")[0])
    parser.add_argument("file", help="a sheaf written by Sheaf.export")
    parser.add_argument("prompt", nargs="+", help="a prompt of the sheaf's task, in quotes")
    options = parser.parse_args(arguments)
    try:
        sheaf = load(options.file)
        for prompt in options.prompt:
            shown = [f"{word} {share:.1%}" for word, share in sheaf.answer(prompt)[:5]]
            print(f"{prompt} ... {', '.join(shown)}")
    except StandaloneError as error:
        print(f"standalone: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
