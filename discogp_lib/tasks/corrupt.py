"""A counterpart for every prompt: as many tokens, another answer."""

from collections.abc import Sequence

import numpy as np

from discogp_lib.tasks.encode import EncodedRow


def corrupted_prompts(encoded: Sequence[EncodedRow]) -> tuple[list[tuple[int, ...]], list[bool]]:
    """Each row's corrupted prompt as tokens, and whether it has one.

    A row's own corrupted prompt is taken where it has as many tokens as the clean one. Otherwise
    the counterpart is another prompt: from the same template, of another class (another first
    token of the answer in relations and where there is one class only) and exactly as long; among
    these the one with most tokens in common, place by place, then the nearest in the list.
    The other prompt may be of another split: what is learned from it is no answer, but methods that
    put its values in the place of a clean prompt's have then read prompts that they are tested on.
    A row for which there is none keeps its own prompt, so that interchange ablation changes
    nothing on it: such rows are counted in the audit.
    """
    by_answer = not encoded[0].foil or len({item.row.group for item in encoded}) == 1
    buckets: dict[tuple[int, str], list[int]] = {}
    for index, item in enumerate(encoded):
        buckets.setdefault((len(item.prompt), item.row.template), []).append(index)
    chosen = [item.prompt for item in encoded]
    found = [False] * len(encoded)
    for members in buckets.values():
        tokens = np.array([encoded[i].prompt for i in members])
        kinds = [encoded[i].target[0] if by_answer else encoded[i].row.group for i in members]
        kind_ids = np.unique(np.array(kinds), return_inverse=True)[1]
        for place, index in enumerate(members):
            own = encoded[index].corrupted
            if len(own) == len(encoded[index].prompt):
                chosen[index], found[index] = own, True
                continue
            common = (tokens == tokens[place]).sum(axis=1)
            others = np.flatnonzero((kind_ids != kind_ids[place]) & (common < tokens.shape[1]))
            if len(others) == 0:
                continue
            distance = np.abs(np.array(members)[others] - index)
            best = others[np.lexsort((distance, -common[others]))[0]]
            chosen[index], found[index] = encoded[members[best]].prompt, True
    return chosen, found
