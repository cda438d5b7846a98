"""Trains the mini model that ships with the package, and measures it on all nineteen tasks.

`python -m discogp_lib.train_mini` trains it from scratch and puts it in its place if it meets the
bar; `python -m discogp_lib.train_mini --report` measures the model that is there and writes the
table of its model card. One thread, one seed: the same machine gives the same weights.
"""

import argparse
import csv
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from discogp_lib.errors import CheckpointError, DiscoGPError
from discogp_lib.mini_report import Score, encode, score_tasks, table, with_table, write_card
from discogp_lib.paths import PACKAGE, atomic_path
from discogp_lib.tasks.mini import corpus

MINI_MODEL = PACKAGE / "mini_model"
END_OF_TEXT = "<|endoftext|>"
BAR = 0.98
"""The least accuracy on any task for the weights to be kept."""


@dataclass(frozen=True)
class Recipe:
    """All that decides the weights."""

    seed: int = 0
    steps: int = 3000
    batch_size: int = 64
    learning_rate: float = 2e-3
    """The highest; 100 steps up to it, then down to nothing along a cosine."""
    warm_up: int = 100
    weight_decay: float = 0.05
    """On matrices and embeddings; not on biases and norms."""
    clip: float = 1.0
    layers: int = 4
    heads: int = 8
    width: int = 128
    positions: int = 32


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word, comma and full stop; a word it does not know becomes `<unk>`."""
    vocabulary = [END_OF_TEXT, "<unk>", *corpus.vocabulary()]
    tokenizer = Tokenizer(
        WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = Split(Regex(r"[^\s,.]+|[,.]"), "removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        unk_token="<unk>",
        model_max_length=Recipe.positions,
    )


def build_model(recipe: Recipe, vocabulary: int) -> GPT2LMHeadModel:
    """A GPT-2 of the recipe's shape with fresh weights."""
    torch.manual_seed(recipe.seed)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=recipe.positions,
        n_embd=recipe.width,
        n_layer=recipe.layers,
        n_head=recipe.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel._from_config(config, attn_implementation="eager")


def batches(
    tokenizer: PreTrainedTokenizerFast, recipe: Recipe
) -> Iterator[list[tuple[Int[Tensor, "part pos"], Int[Tensor, "part pos"]]]]:
    """Sentences of the corpus without end: inputs, and for each token the one that follows.

    A batch comes as its shorter two thirds and its longer third, which saves most of the padding.
    """
    rng = random.Random(recipe.seed)
    while True:
        lines = [corpus.sentence(rng) for _ in range(recipe.batch_size)]
        lines.sort(key=lambda line: len(corpus.words(line)))
        cut = 2 * len(lines) // 3
        yield [_with_following(*encode(tokenizer, part)) for part in (lines[:cut], lines[cut:])]


def _with_following(
    tokens: Int[Tensor, "part pos"], lengths: Int[Tensor, " part"]
) -> tuple[Int[Tensor, "part pos"], Int[Tensor, "part pos"]]:
    """The tokens and their successors; after the last one the text ends, padding is -100."""
    following = torch.nn.functional.pad(tokens[:, 1:], (0, 1))
    following[torch.arange(tokens.shape[1]) >= lengths[:, None]] = -100
    return tokens, following


def train(
    recipe: Recipe, tokenizer: PreTrainedTokenizerFast, log_every: int = 100
) -> tuple[GPT2LMHeadModel, list[dict[str, int | float]]]:
    """Trains a fresh model; returns it with a log of the loss."""
    torch.set_num_threads(1)
    model = build_model(recipe, len(tokenizer)).train()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        fused=True,
    )
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, recipe.warm_up)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, max(1, recipe.steps - recipe.warm_up)
    )
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], [recipe.warm_up])
    log: list[dict[str, int | float]] = []
    losses: list[float] = []
    started = time.monotonic()
    for step, parts in enumerate(batches(tokenizer, recipe), start=1):
        optimizer.zero_grad()
        total = sum(int((following != -100).sum()) for _, following in parts)
        losses.append(sum(_backward(model, *part, total) for part in parts))
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        schedule.step()
        if step % log_every == 0 or step == recipe.steps:
            mean = sum(losses) / len(losses)
            log.append({"step": step, "loss": round(mean, 5)} | _quick_look(model, tokenizer))
            print(_progress(log[-1], recipe.steps, time.monotonic() - started), flush=True)
            losses.clear()
        if step == recipe.steps:
            return model.eval(), log
    raise AssertionError("the corpus has no end")


def _backward(
    model: GPT2LMHeadModel,
    tokens: Int[Tensor, "part pos"],
    following: Int[Tensor, "part pos"],
    total: int,
) -> float:
    """Adds the gradient of this part's share of the mean loss over `total` tokens; gives it."""
    real = following != -100
    logits = model.lm_head(model.transformer(tokens).last_hidden_state[real])
    loss = torch.nn.functional.cross_entropy(logits, following[real], reduction="sum") / total
    loss.backward()
    return loss.item()


def write_model(
    out: Path,
    recipe: Recipe,
    model: GPT2LMHeadModel,
    tokenizer: PreTrainedTokenizerFast,
    log: Sequence[dict[str, int | float]],
    scores: Sequence[Score],
) -> None:
    """Puts the whole folder in its place at once: all files of one training, or the old ones."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        model.save_pretrained(new)
        tokenizer.save_pretrained(new)
        (new / "generation_config.json").unlink(missing_ok=True)
        with open(new / "training_log.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, fieldnames=list(log[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(log)
        (new / "README.md").write_text(write_card(asdict(recipe), model, scores), encoding="utf-8")
        for path in new.iterdir():
            path.chmod(0o644)  # the weights are written readable by their owner only
        if out.exists():
            out.rename(old)
        new.rename(out)
        shutil.rmtree(old, ignore_errors=True)


def train_and_write(recipe: Recipe, out: Path) -> None:
    """Trains, measures, and keeps the result only if it meets the bar on every task."""
    tokenizer = build_tokenizer()
    model, log = train(recipe, tokenizer)
    scores = score_tasks(model, tokenizer)
    print(table(scores))
    missed = [score.task for score in scores if score.accuracy < BAR]
    if missed:
        raise DiscoGPError(
            f"The model misses {BAR:.0%} on {', '.join(missed)}, so {out} is left as it was; "
            "try more --steps or another --seed."
        )
    write_model(out, recipe, model, tokenizer, log, scores)
    print(f"written to {out}")


def refresh_report(out: Path) -> str:
    """Measures the model in `out`, writes the table into its card, and returns the table."""
    if not (out / "model.safetensors").is_file():
        raise CheckpointError(
            f"There is no model in {out}; run python -m discogp_lib.train_mini to make one."
        )
    torch.set_num_threads(1)
    model = GPT2LMHeadModel.from_pretrained(out).eval()
    scores = score_tasks(model, PreTrainedTokenizerFast.from_pretrained(out))
    card = with_table((out / "README.md").read_text(encoding="utf-8"), scores)
    with atomic_path(out / "README.md") as temporary:
        temporary.write_text(card, encoding="utf-8")
    return table(scores)


def _quick_look(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast
) -> dict[str, int | float]:
    """Mean accuracy on a few prompts of each kind of task, for the log."""
    kinds: dict[str, list[float]] = {"blimp": [], "ioi": [], "pararel": []}
    for score in score_tasks(model, tokenizer, most=40):
        kinds[re.split(r"[/ ]", score.task)[0]].append(score.accuracy)
    return {kind: round(sum(values) / len(values), 4) for kind, values in kinds.items()}


def _progress(entry: dict[str, int | float], steps: int, seconds: float) -> str:
    values = "  ".join(f"{key} {value:.3f}" for key, value in entry.items() if key != "step")
    return f"step {entry['step']:>5} of {steps}  {values}  {seconds:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m discogp_lib.train_mini", description=__doc__)
    parser.add_argument("--report", action="store_true", help="measure the model that is there")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--out", type=Path, default=MINI_MODEL, help="the folder of the model")
    options = parser.parse_args(arguments)
    try:
        if options.report:
            print(refresh_report(options.out))
        else:
            train_and_write(replace(Recipe(), seed=options.seed, steps=options.steps), options.out)
    except DiscoGPError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
