"""Scoring an answer by all its tokens, beside the paper's scoring by the first one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from discogp_lib.tasks.base import Row
from discogp_lib.tasks.encode import encode_rows

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer

Tokens = tuple[int, ...]

BATCH = 32


@dataclass(frozen=True)
class WordScores:
    """The full model's accuracy on the same rows under both ways of scoring an answer."""

    rows: int
    """Rows scored, ties included."""
    first_token: float
    """Accuracy by first tokens, on the rows without a tie."""
    whole_word: float
    """Accuracy by whole words, on the rows without a tie."""
    whole_word_all: float
    """Accuracy by whole words, on all rows: a tie is no obstacle to it."""


def score_words(rows: Sequence[Row], model: MaskedTransformer, *, max_rows: int) -> WordScores:
    """Accuracy by first tokens and by whole words (the sum of their log-probabilities).

    The candidates are the row's two words, or all answers of the relation. At most `max_rows`
    distinct rows are scored, always the same sample of them.
    """
    encoded = encode_rows(list(dict.fromkeys(rows)), model)
    answers = list(dict.fromkeys(item.target for item in encoded))
    sample = random.Random(0).sample(range(len(encoded)), min(max_rows, len(encoded)))
    chosen = [encoded[i] for i in sample]
    candidates = [[item.target, item.foil] if item.foil else answers for item in chosen]
    first, whole = _predictions([item.prompt for item in chosen], candidates, model)
    by_first = [word[0] == item.target[0] for word, item in zip(first, chosen, strict=True)]
    by_word = [word == item.target for word, item in zip(whole, chosen, strict=True)]
    untied = [i for i, item in enumerate(chosen) if not item.tied]
    return WordScores(
        rows=len(chosen),
        first_token=_share([by_first[i] for i in untied]),
        whole_word=_share([by_word[i] for i in untied]),
        whole_word_all=_share(by_word),
    )


def _share(right: Sequence[bool]) -> float:
    return sum(right) / len(right) if right else float("nan")


def _predictions(
    prompts: Sequence[Tokens], candidates: Sequence[Sequence[Tokens]], model: MaskedTransformer
) -> tuple[list[Tokens], list[Tokens]]:
    """For each prompt the candidate that wins by its first token, and the one by all tokens.

    A word is never more probable than its first token, so only words whose first token beats the
    best whole word so far are run, the likeliest first: exact, and far cheaper than running all.
    """
    first_words: list[Tokens] = []
    best_words: list[Tokens] = []
    best_scores: list[float] = []
    pending: list[list[tuple[float, Tokens]]] = []
    after_prompts = _log_probs(prompts, [1] * len(prompts), model)
    for last, words in zip(after_prompts, candidates, strict=True):
        bounds = {word: float(last[0, word[0]]) for word in words}
        ranked = sorted(words, key=lambda word: -bounds[word])
        single = [word for word in ranked if len(word) == 1]
        first_words.append(ranked[0])
        best_words.append(single[0] if single else ())
        best_scores.append(bounds[single[0]] if single else -float("inf"))
        pending.append([(bounds[word], word) for word in ranked if len(word) > 1])
    while True:
        running = [i for i, queue in enumerate(pending) if queue and queue[0][0] > best_scores[i]]
        if not running:
            return first_words, best_words
        words = [pending[i].pop(0)[1] for i in running]
        sequences = [prompts[i] + word[:-1] for i, word in zip(running, words, strict=True)]
        log_probs = _log_probs(sequences, [len(word) for word in words], model)
        for i, word, rows in zip(running, words, log_probs, strict=True):
            score = sum(float(row[token]) for row, token in zip(rows, word, strict=True))
            if score > best_scores[i]:
                best_words[i], best_scores[i] = word, score


def _log_probs(
    sequences: Sequence[Tokens], counts: Sequence[int], model: MaskedTransformer
) -> Iterator[Float[Tensor, "pos vocab"]]:
    """The next-token log-probabilities after each of a sequence's last `count` tokens."""
    for start in range(0, len(sequences), BATCH):
        batch = sequences[start : start + BATCH]
        width = max(map(len, batch))
        padded = [[*tokens, *[0] * (width - len(tokens))] for tokens in batch]
        with torch.no_grad():
            logits = model.logits(torch.tensor(padded, device=model.device))
        for row, tokens, count in zip(logits, batch, counts[start : start + BATCH], strict=True):
            yield row[len(tokens) - count : len(tokens)].log_softmax(dim=-1).cpu()
