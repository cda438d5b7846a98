"""From rows of text to a task, the same way for every source."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool
from safetensors.torch import load_file, save_file
from torch import Tensor

from discogp_lib.errors import TaskError
from discogp_lib.paths import atomic_path, cache_dir
from discogp_lib.tasks.audit import Audit
from discogp_lib.tasks.base import Row, Split, Task, identity
from discogp_lib.tasks.corrupt import corrupted_prompts
from discogp_lib.tasks.encode import EncodedRow, encode_rows, refuse_unknown
from discogp_lib.tasks.splits import Parts, split_rows

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer

MINIMUM_ROWS = 12
"""With fewer rows a split would hold one or two prompts, and its accuracy would say nothing."""

LARGE_MODEL = 10_000_000
"""From so many weights on, what a model answers is kept: asking it again takes minutes."""


def build_task(
    name: str,
    short_name: str,
    rows: Sequence[Row],
    model: MaskedTransformer,
    *,
    source: str,
    sizes: Sequence[int] | None = None,
    seed: int = 0,
    only_correct: bool = False,
    held_out_templates: int = 0,
    unfit_words: int = 0,
) -> Task:
    """Tokenise, drop what cannot be scored, find counterparts, split and count.

    `sizes` are the most rows of train, dev and test; without it all rows are used, 60/20/20.
    With `only_correct` the splits hold only the prompts the full model answers correctly. With
    `held_out_templates` that many templates, chosen by seed, occur in test and nowhere else.
    """
    encoded = encode_rows(rows, model)
    refuse_unknown(name, encoded, model)
    unique = _distinct(encoded)
    kept = [item for item in unique if not item.tied]
    _refuse_few(name, len({item.prompt for item in kept}), "prompts that one token can decide")
    counterparts, found = corrupted_prompts(kept)
    labels, group_names, label_words = _labels(kept)
    everything = _tensors(kept, counterparts, labels, group_names)

    usable = list(range(len(kept)))
    if only_correct:
        usable = _correct(everything, model).nonzero().flatten().tolist()
        right = len({kept[i].prompt for i in usable})
        _refuse_few(name, right, f"prompts that {model.name!r} answers correctly")
    sizes = sizes or (3 * len(rows), len(rows), len(rows))
    parts = _split([kept[i] for i in usable], sizes, f"{name}/{seed}", held_out_templates)
    indices = [[usable[i] for i in part] for part in parts]
    train, dev, test = (everything.select(index) for index in indices)
    used = [i for index in indices for i in index]
    audit = Audit(
        source=source,
        correct=len(usable) if only_correct else None,
        uncorrupted=sum(not found[i] for i in used),
        unfit_words=unfit_words,
        n_labels=everything.labels.shape[1],
        **_counts(encoded, unique, kept),
        **_statistics([kept[i] for i in used]),
    )
    return Task(
        name=name,
        short_name=short_name,
        train=train,
        dev=dev,
        test=test,
        group_names=group_names,
        label_words=label_words,
        audit=audit,
        sha256=identity((train, dev, test), group_names, label_words),
    )


def _distinct(encoded: Sequence[EncodedRow]) -> list[EncodedRow]:
    """Each prompt with its answers once, the first of its kind; prompts are what a model reads."""
    found: dict[tuple[tuple[int, ...], str, str | None], EncodedRow] = {}
    for item in encoded:
        found.setdefault((item.prompt, item.row.target, item.row.foil), item)
    return list(found.values())


def _counts(
    encoded: Sequence[EncodedRow], unique: Sequence[EncodedRow], kept: Sequence[EncodedRow]
) -> dict[str, Any]:
    """What the audit says of the rows before the model is asked anything."""
    answers: dict[tuple[int, ...], set[str]] = {}
    for item in unique:
        answers.setdefault(item.prompt, set()).add(item.row.target)
    words = {item.row.target: item.target[0] for item in kept if not item.foil}
    return {
        "rows_in": len(encoded),
        "duplicates": len(encoded) - len(unique),
        "ties": len(unique) - len(kept),
        "multi_token_targets": sum(len(item.target) > 1 for item in unique),
        "collisions": len(words) - len(set(words.values())),
        "ambiguous": sum(len(targets) > 1 for targets in answers.values()),
        "majority_in": _majority([_class(item) for item in encoded]),
    }


def _statistics(used: Sequence[EncodedRow]) -> dict[str, Any]:
    """What the audit says of the rows in the three splits."""
    lengths = [len(item.prompt) for item in used]
    return {
        "rows_used": len(used),
        "majority": _majority([_class(item) for item in used]),
        "tokens_min": min(lengths),
        "tokens_mean": sum(lengths) / len(lengths),
        "tokens_max": max(lengths),
    }


def _refuse_few(name: str, count: int, what: str) -> None:
    if count < MINIMUM_ROWS:
        raise TaskError(
            f"Task {name!r} has {count} {what}, and needs {MINIMUM_ROWS} at least; "
            "use another model or add rows."
        )


def _class(item: EncodedRow) -> str | int:
    """A row's class: its group, or in a relation its answer's first token."""
    return item.row.group if item.foil else item.target[0]


def _majority(classes: Sequence[str | int]) -> float:
    """The share of the most frequent class."""
    return max(Counter(classes).values()) / len(classes)


def _labels(
    kept: Sequence[EncodedRow],
) -> tuple[list[int] | None, tuple[str, ...], tuple[str, ...] | None]:
    """A relation's label tokens (None for pairs), the class names, the label words.

    Answers that start with the same token are one label, named by all of them.
    """
    pairs = {bool(item.foil) for item in kept}
    if pairs == {True}:
        return None, tuple(sorted({item.row.group for item in kept})), None
    if pairs != {False}:
        raise TaskError("A task's rows have a foil in all rows or in none of them.")
    words: dict[int, list[str]] = {}
    for target, token in sorted({(item.row.target.strip(), item.target[0]) for item in kept}):
        words.setdefault(token, []).append(target)
    if len(words) == 1:
        raise TaskError("All answers begin with the same token, so there is nothing to choose.")
    names = tuple(" / ".join(group) for group in words.values())
    return list(words), names, names


def _tensors(
    kept: Sequence[EncodedRow],
    counterparts: Sequence[tuple[int, ...]],
    labels: list[int] | None,
    group_names: Sequence[str],
) -> Split:
    """All rows as one split, in their order."""
    if labels is None:
        rows_of_labels = [[item.target[0], item.foil[0]] for item in kept]
        targets = [0] * len(kept)
        groups = [group_names.index(item.row.group) for item in kept]
    else:
        rows_of_labels = [labels] * len(kept)
        targets = groups = [labels.index(item.target[0]) for item in kept]
    width = max(len(item.prompt) for item in kept)
    return Split(
        prompts=tuple(item.row.prompt for item in kept),
        tokens=torch.tensor([[*item.prompt, *[0] * (width - len(item.prompt))] for item in kept]),
        corrupted=torch.tensor(
            [[*tokens, *[0] * (width - len(tokens))] for tokens in counterparts]
        ),
        lengths=torch.tensor([len(item.prompt) for item in kept]),
        labels=torch.tensor(rows_of_labels),
        targets=torch.tensor(targets),
        groups=torch.tensor(groups),
    )


def _correct(split: Split, model: MaskedTransformer) -> Bool[Tensor, " prompt"]:
    """Which prompts the full model answers correctly, over the label set.

    A large model takes minutes for that on a CPU, so what it answers is kept in the cache.
    """
    from discogp_lib.evaluate import label_logits

    if model.n_weights < LARGE_MODEL:
        return label_logits(model, split).argmax(dim=1).cpu() == split.targets
    key = hashlib.sha256(model.checkpoint_sha256.encode())
    for tensor in (split.tokens, split.lengths, split.labels):
        key.update(tensor.numpy().tobytes())
    path = cache_dir() / "answers" / f"{key.hexdigest()}.safetensors"
    if not path.exists():
        answers = label_logits(model, split).argmax(dim=1).cpu()
        with atomic_path(path) as temporary:
            save_file({"answers": answers}, temporary)
    return load_file(path)["answers"] == split.targets


def _split(
    items: Sequence[EncodedRow], sizes: Sequence[int], seed: str, held_out_templates: int
) -> Parts:
    """Train, dev and test by seed, and by template where some are held out."""
    prompts = [item.prompt for item in items]
    groups = [str(_class(item)) for item in items]
    if not held_out_templates:
        return split_rows(prompts, groups, sizes, seed)
    templates = sorted({item.row.template for item in items})
    if not 0 < held_out_templates < len(templates):
        raise TaskError(
            f"{held_out_templates} templates cannot be held out of {len(templates)}; "
            "at least one has to stay on each side."
        )
    held = set(random.Random(seed).sample(templates, held_out_templates))
    inside = [i for i, item in enumerate(items) if item.row.template not in held]
    outside = [i for i, item in enumerate(items) if item.row.template in held]
    train, dev, _ = split_rows(
        [prompts[i] for i in inside], [groups[i] for i in inside], (*sizes[:2], 0), seed
    )
    _, _, test = split_rows(
        [prompts[i] for i in outside], [groups[i] for i in outside], (0, 0, sizes[2]), seed
    )
    return ([inside[i] for i in train], [inside[i] for i in dev], [outside[i] for i in test])
