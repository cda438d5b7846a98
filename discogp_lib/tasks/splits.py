"""Which row goes to train, dev and test: by seed, disjoint in prompts, classes in proportion."""

import random
from collections.abc import Hashable, Sequence

Parts = tuple[list[int], list[int], list[int]]


def split_rows(
    prompts: Sequence[Hashable], groups: Sequence[str], sizes: Sequence[int], seed: str
) -> Parts:
    """Row indices of train, dev and test.

    `sizes` are the three sizes wanted; where there are fewer rows all three shrink in proportion,
    where there are more the rest stays unused. Rows with the same prompt stay together. Every
    class is dealt in the proportion of the sizes, with one row at least in each split where it
    has that many. The same seed gives the same split on every machine.
    """
    rng = random.Random(seed)
    blocks: dict[Hashable, list[int]] = {}
    for index, prompt in enumerate(prompts):
        blocks.setdefault(prompt, []).append(index)
    classes: dict[str, list[list[int]]] = {}
    for block in blocks.values():
        classes.setdefault(groups[block[0]], []).append(block)

    quotas = _quotas(len(blocks), sizes)
    dealt = [0] * len(quotas)
    parts: list[list[int]] = [[] for _ in quotas]
    for group in sorted(classes):
        members = classes[group]
        rng.shuffle(members)
        counts = _deal(len(members), quotas, dealt)
        dealt = [before + now for before, now in zip(dealt, counts, strict=True)]
        start = 0
        for part, count in zip(parts, counts, strict=True):
            part.extend(index for block in members[start : start + count] for index in block)
            start += count
    for part in parts:
        rng.shuffle(part)
    return parts[0], parts[1], parts[2]


def _quotas(available: int, sizes: Sequence[int]) -> list[int]:
    """The sizes as they can be had, and what stays unused; they add up to `available`."""
    wanted = sum(sizes)
    used = min(available, wanted)
    quotas = [used * size // wanted for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: -(used * sizes[i] % wanted))
    for i in by_remainder[: used - sum(quotas)]:
        quotas[i] += 1
    return _one_each([*quotas, available - used], [size > 0 for size in sizes])


def _deal(members: int, quotas: Sequence[int], dealt: Sequence[int]) -> list[int]:
    """How many of a class's members each part gets, given what earlier classes got."""
    total = sum(quotas)
    counts = [members * quota // total for quota in quotas]
    reached = sum(dealt) + members
    while sum(counts) < members:
        behind = [
            quota * reached - total * (before + now)
            for quota, before, now in zip(quotas, dealt, counts, strict=True)
        ]
        counts[max(range(len(counts)), key=lambda i: behind[i])] += 1
    return _one_each(counts, [quota > 0 for quota in quotas[:3]])


def _one_each(counts: list[int], wanted: Sequence[bool]) -> list[int]:
    """The counts with one at least for every wanted part, taken from where most is to spare."""
    needed = [int(i < len(wanted) and wanted[i]) for i in range(len(counts))]
    if sum(counts) >= sum(needed):
        for i in range(len(counts)):
            if counts[i] < needed[i]:
                spare = [count - need for count, need in zip(counts, needed, strict=True)]
                counts[spare.index(max(spare))] -= 1
                counts[i] += 1
    return counts
