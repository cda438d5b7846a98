"""What a tokenizer makes of rows, and whether the two fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discogp_lib.errors import TaskError
from discogp_lib.tasks.base import Row

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer


@dataclass(frozen=True)
class EncodedRow:
    """A row with its token ids; `prompt` and `corrupted` start with BOS where there is one."""

    row: Row
    prompt: tuple[int, ...]
    target: tuple[int, ...]
    foil: tuple[int, ...]
    """The wrong word's tokens; empty where the label set is the relation's answers."""
    corrupted: tuple[int, ...]
    """The corrupted prompt's tokens; empty where none is given."""
    unknown: bool
    """The tokenizer has no token for a part of the row."""

    @property
    def tied(self) -> bool:
        """The right and the wrong word start with the same token, so it cannot tell them apart."""
        return bool(self.foil) and self.target[0] == self.foil[0]


def tokenize(texts: Sequence[str], model: MaskedTransformer) -> list[tuple[int, ...]]:
    """Token ids of each text, nothing added."""
    if not texts:
        return []
    ids = model.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [tuple(row) for row in ids]


def encode_rows(rows: Sequence[Row], model: MaskedTransformer) -> list[EncodedRow]:
    """Rows as token ids.

    An answer's tokens are those it adds to its prompt, so that its leading space is read as the
    model would read it. A tokenizer that reads the prompt itself differently once the answer
    follows cannot score the answer at a prompt's last token, and is refused.
    """
    start = () if model.bos is None else (model.bos,)
    prompts = tokenize([row.prompt for row in rows], model)
    targets = tokenize([row.prompt + row.target for row in rows], model)
    foils = tokenize([row.prompt + (row.foil or "") for row in rows], model)
    corrupted = tokenize([row.corrupted for row in rows], model)
    unknown_id = model.tokenizer.unk_token_id
    encoded = []
    for row, prompt, target, foil, other in zip(
        rows, prompts, targets, foils, corrupted, strict=True
    ):
        size = len(prompt)
        if target[:size] != prompt or foil[:size] != prompt:
            raise TaskError(
                f"The tokenizer of {model.name!r} joins the answer to the prompt {row.prompt!r}, "
                "so it does not start a token of its own; use a model whose words start "
                "with their space."
            )
        encoded.append(
            EncodedRow(
                row=row,
                prompt=start + prompt,
                target=target[size:],
                foil=foil[size:],
                corrupted=start + other if row.corrupted else (),
                unknown=unknown_id is not None and unknown_id in (*target, *foil, *other),
            )
        )
    return encoded


def unknown_word(row: Row, model: MaskedTransformer) -> str:
    """The first word of a row for which the tokenizer has no token."""
    words = f"{row.prompt}{row.target}{row.foil or ''} {row.corrupted}".split()
    tokens = tokenize(words, model)
    return next(
        w for w, ids in zip(words, tokens, strict=True) if model.tokenizer.unk_token_id in ids
    )


def refuse_unknown(name: str, encoded: Sequence[EncodedRow], model: MaskedTransformer) -> None:
    """Say so when the tokenizer has no token for words of the task."""
    unknown = [item.row for item in encoded if item.unknown]
    if unknown:
        raise TaskError(
            f"The tokenizer of {model.name!r} does not know all words of task {name!r} (first "
            f"{unknown_word(unknown[0], model)!r}; {len(unknown)} of {len(encoded)} prompts); "
            "use a model trained on such text, or dgp.load_model('mini') for generated prompts."
        )
