"""What the mini model knows: its accuracy on the nineteen tasks, and the card that says so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedTokenizerBase

from discogp_lib.errors import CheckpointError
from discogp_lib.tasks import mini
from discogp_lib.tasks.base import Row
from discogp_lib.tasks.mini import corpus

START, END = "<!-- accuracy: start -->", "<!-- accuracy: end -->"


@dataclass(frozen=True)
class Score:
    """What the model gets right on one task."""

    task: str
    prompts: int
    accuracy: float
    """How often the right answer is above the rest of the label set."""
    top: float
    """How often the right answer is above the whole vocabulary."""
    tokens: float
    """Mean tokens of a prompt, the one at its start included."""


def encode(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> tuple[Int[Tensor, "text pos"], Int[Tensor, " text"]]:
    """The texts as token ids after the start token (0), padded on the right, and their lengths."""
    ids = [[0, *line] for line in tokenizer(list(texts))["input_ids"]]
    width = max(len(line) for line in ids)
    padded = torch.tensor([line + [0] * (width - len(line)) for line in ids])
    return padded, torch.tensor([len(line) for line in ids])


@torch.no_grad()
def measure(
    model: GPT2LMHeadModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    answers: Sequence[str] = (),
) -> tuple[float, float]:
    """How often the right word wins over its foil (or the other `answers`), and over all words."""
    tokens, lengths = encode(tokenizer, [row.prompt for row in rows])
    last: Float[Tensor, "prompt vocab"] = torch.cat(
        [
            model(part[:, : int(ends.max())]).logits[torch.arange(len(part)), ends - 1]
            for part, ends in zip(tokens.split(100), lengths.split(100), strict=True)
        ]
    )
    right = encode(tokenizer, [row.target for row in rows])[0][:, 1]
    if answers:
        others = encode(tokenizer, answers)[0][:, 1].expand(len(rows), -1)
    else:
        others = encode(tokenizer, [str(row.foil) for row in rows])[0][:, 1:]
    score = last.gather(1, right[:, None])
    rivals = last.gather(1, others).masked_fill(others == right[:, None], float("-inf"))
    wins = (score > rivals).all(dim=1).float().mean().item()
    return wins, (last.argmax(dim=1) == right).float().mean().item()


def score_tasks(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerBase, *, most: int | None = None
) -> list[Score]:
    """The score of every task, on its first `most` prompts; IOI in each of its two orders."""
    scores = []
    for name in mini.NAMES:
        rows = mini.rows(name)
        facts = rows[0].foil is None
        answers = sorted({row.target for row in rows}) if facts else []
        parts = {name: rows}
        if name == "ioi":
            orders = ("ABBA", "BABA")
            parts = {f"{name} ({o})": [row for row in rows if row.group == o] for o in orders}
        for label, part in parts.items():
            part = part[:: max(1, len(part) // most)] if most else part
            accuracy, top = measure(model, tokenizer, part, answers)
            tokens = sum(1 + len(corpus.words(row.prompt)) for row in part) / len(part)
            scores.append(Score(label, len(part), accuracy, top, tokens))
    return scores


def table(scores: Sequence[Score]) -> str:
    """The scores as a Markdown table."""
    lines = [
        "| task | prompts | tokens | accuracy % | top word % |",
        "|---|---:|---:|---:|---:|",
    ]
    for score in scores:
        top = f"{100 * score.top:.1f}" if score.task.startswith("pararel") else ""
        lines.append(
            f"| {score.task} | {score.prompts} | {score.tokens:.1f} "
            f"| {100 * score.accuracy:.1f} | {top} |"
        )
    return "\n".join(lines)


def with_table(card: str, scores: Sequence[Score]) -> str:
    """The card with its accuracy table replaced by one of these scores."""
    before, start, rest = card.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise CheckpointError(
            f"The model card has no place for the table; put the lines {START} and {END} into it."
        )
    return f"{before}{START}\n{table(scores)}\n{END}{after}"


def write_card(
    recipe: Mapping[str, int | float], model: GPT2LMHeadModel, scores: Sequence[Score]
) -> str:
    """The model card: what it is, its data, its recipe, its licence and its accuracy."""
    config = model.config
    card = _CARD.format(
        **recipe,
        vocabulary=config.vocab_size,
        parameters=sum(p.numel() for p in model.parameters()),
        maskable=sum(
            p.numel() for n, p in model.named_parameters() if ".attn." in n or ".mlp." in n
        ),
        shares=", ".join(f"{share} % {kind}" for kind, share in corpus.SHARES.items()),
        start=START,
        end=END,
    )
    return with_table(card, scores)


_CARD = """\
---
license: mit
language: en
library_name: transformers
---

# The mini model

A small GPT-2 that knows the nineteen tasks of this repository, so that every notebook runs
without a download. It is made for studying how circuits and sheaves are found, and for nothing
else: it speaks only the sentences of its own grammar.

| | |
|---|---|
| architecture | `GPT2LMHeadModel`, {layers} layers x {heads} heads, width {width}, gelu_new |
| parameters | {parameters:,}, of them {maskable:,} in attention and MLPs |
| vocabulary | {vocabulary:,} words; a comma and a full stop are words; unknown words are `<unk>` |
| positions | {positions} |
| start of a text | `<|endoftext|>` (id 0), before every prompt and after every sentence |

## Accuracy

`python -m discogp_lib.train_mini --report` measures the files in this folder and writes this
table. *Accuracy*: the right answer is above its foil, or above the relation's other answers.
*Top word*: the right answer is above all words. *Tokens*: the mean length of a prompt, with the
start token. The agreement and IOI prompts are held out (see below); the facts are memorised.

{start}
{end}

## Data

Generated by `discogp_lib/tasks/mini` while training, one sentence a row
({shares}):

- **Agreement**: subject, verb phrase, and an anaphor or a noun phrase, in the six phenomena of
  the paper, over a lexicon of our own. A fifth of the pairs of subject and verb phrase never
  occurs in training; the tasks ask only about those.
- **IOI**: the paper's fifteen templates in both orders, 40 names, 8 places, 8 objects. A sixth of
  the ordered pairs (receiver, giver) never occurs in training; the task asks only about those.
- **Facts**: 12 relations x 40 facts x 5 templates, written for this project. True to the best of
  our knowledge, simplified (one answer each), and not a reference.
- **Filler**: plain sentences of the same words.

Nothing was copied from BLiMP or PARAREL. Short plain English coincides all the same: 7 of the 60
fact templates are also PARAREL patterns, 106 of the 480 facts are also pairs of its data (France
and Paris), and a few of the shortest anaphor sentences of the corpus are also in BLiMP; none of
the agreement prompts of the tasks, completed with its answer, is.

## Recipe

`python -m discogp_lib.train_mini` (or `make mini-model`) retrains it from scratch on one thread
(13 and 19 minutes when tried on busy cores, with the same weights to the bit) and keeps the
result only if every row of the table is at least 98 %.
Seed {seed}; {steps:,} steps of {batch_size} sentences; AdamW, learning rate {learning_rate:g}
(up over {warm_up} steps, then down along a cosine), weight decay {weight_decay:g} on matrices,
gradient norm at most {clip:g}, no dropout, float32. `training_log.csv` has the mean loss and
quick accuracies every 100 steps.

## Licence

MIT, like the repository.
"""
