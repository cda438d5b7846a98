"""What a task is: rows of text before a tokenizer, splits of token ids after it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer
    from discogp_lib.tasks.audit import Audit


@dataclass(frozen=True)
class Row:
    """One prompt as text, before any tokenizer."""

    prompt: str
    """The text before the answer, without a trailing space."""
    target: str
    """The right answer with its leading space: `" herself"`."""
    foil: str | None
    """The wrong answer; None where the label set is the relation's answers."""
    corrupted: str
    """The prompt with the decisive word changed, as many tokens long; "" to have one chosen."""
    group: str
    """The class for balancing and class-balanced accuracy: "plural", "BABA", an answer."""
    template: str = ""
    """The surface template that made the prompt, for held-out templates."""


@dataclass(frozen=True)
class Split:
    """Prompts of one split as tensors (CPU, int64), ready for a model."""

    prompts: tuple[str, ...]
    """The text of each prompt."""
    tokens: Int[Tensor, "prompt pos"]
    """Token ids, BOS included where the model has one, padded with 0 on the right.

    Causal attention never looks right, so the padding changes nothing at the last real token.
    """
    corrupted: Int[Tensor, "prompt pos"]
    """The corrupted prompts, row by row as long as the clean ones."""
    lengths: Int[Tensor, " prompt"]
    """Real tokens per prompt, BOS included; the answer follows position `lengths - 1`."""
    labels: Int[Tensor, "prompt label"]
    """Token ids of each prompt's label set: [target, foil], or the relation's answers."""
    targets: Int[Tensor, " prompt"]
    """The column of `labels` that is right."""
    groups: Int[Tensor, " prompt"]
    """The class of each prompt, an index into `Task.group_names`."""

    def __len__(self) -> int:
        return len(self.prompts)

    def first(self, n: int) -> Split:
        """The first `n` prompts, all of them where there are fewer."""
        return self.select(range(min(n, len(self))))

    def select(self, index: Sequence[int] | Tensor) -> Split:
        """The prompts at `index`, in that order (a boolean mask works too), padding trimmed."""
        chosen = torch.as_tensor(index)
        if chosen.dtype == torch.bool:
            chosen = chosen.nonzero().flatten()
        chosen = chosen.to(torch.int64)
        lengths = self.lengths[chosen]
        width = int(lengths.max()) if len(lengths) else 0
        return Split(
            prompts=tuple(self.prompts[i] for i in chosen.tolist()),
            tokens=self.tokens[chosen, :width],
            corrupted=self.corrupted[chosen, :width],
            lengths=lengths,
            labels=self.labels[chosen],
            targets=self.targets[chosen],
            groups=self.groups[chosen],
        )

    def batches(self, size: int) -> Iterator[Split]:
        """Consecutive parts of at most `size` prompts, each padded only to its own longest."""
        for start in range(0, len(self), size):
            yield self.select(range(start, min(start + size, len(self))))


@dataclass(frozen=True)
class Task:
    """A question put to a model in many prompts: what a sheaf is searched for and judged on."""

    name: str
    """ "ioi", "blimp/...", "pararel/P36", or the user's own."""
    short_name: str
    """As in the paper's tables: "AGA", "IOI", "P36"."""
    train: Split
    dev: Split
    test: Split
    group_names: tuple[str, ...]
    """The classes that `Split.groups` counts."""
    label_words: tuple[str, ...] | None
    """A relation's answer words in label order; None for pairs."""
    audit: Audit
    """What was counted on the way from the source to the splits."""
    sha256: str
    """Identity of everything that matters to a run: tokens, labels, targets, classes, splits."""

    @classmethod
    def from_pairs(
        cls,
        name: str,
        prompts: Sequence[str],
        targets: Sequence[str],
        foils: Sequence[str],
        model: MaskedTransformer,
        *,
        seed: int = 0,
    ) -> Task:
        """A task of one's own: which of two words follows each prompt.

        An answer without its leading space gets one. The splits are 60/20/20 by `seed`; the
        class of a row is its answer; the corrupted prompt is the nearest prompt with another
        answer and as many tokens.
        """
        from discogp_lib.tasks.own import task_from_pairs

        return task_from_pairs(name, prompts, targets, foils, model, seed=seed)

    @classmethod
    def from_jsonl(cls, path: str | Path, model: MaskedTransformer, *, seed: int = 0) -> Task:
        """A task of one's own from a file with one JSON object per line.

        Each line has the fields `prompt`, `target` and `foil`, and may have `corrupted` (the
        prompt with its decisive word changed, as many tokens long) and `group` (the class).
        All that is wrong with the file is told at once, with line numbers.
        """
        from discogp_lib.tasks.own import task_from_jsonl

        return task_from_jsonl(path, model, seed=seed)


def identity(
    splits: Sequence[Split], group_names: Sequence[str], label_words: Sequence[str] | None
) -> str:
    """The SHA-256 of a task's contents, the same on every platform."""
    digest = hashlib.sha256()
    words = [list(group_names), None if label_words is None else list(label_words)]
    digest.update(json.dumps(words, ensure_ascii=True).encode())
    for split in splits:
        for tensor in (
            split.tokens,
            split.corrupted,
            split.lengths,
            split.labels,
            split.targets,
            split.groups,
        ):
            digest.update(json.dumps(list(tensor.shape)).encode())
            digest.update(tensor.contiguous().numpy().astype("<i8").tobytes())
    return digest.hexdigest()
