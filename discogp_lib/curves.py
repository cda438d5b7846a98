"""Accuracy and KL against edge density: how a method trades one for the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from discogp_lib.config import Ablation
from discogp_lib.evaluate import Reference, evaluate
from discogp_lib.methods.budget import by_score
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split

SIZES = (0.005, 0.008, 0.014, 0.023, 0.039, 0.065, 0.108, 0.18, 0.3, 0.5)
"""Ten edge densities from 0.5 to 50 %, each 1.67 times the one before."""


def density_curve(
    model: MaskedTransformer,
    split: Split,
    at: Callable[[float], Sheaf] | Float[Tensor, " edge"],
    sizes: Sequence[float] = SIZES,
    *,
    ablation: Ablation = "zero",
    reference: Reference | None = None,
) -> pd.DataFrame:
    """One row per density asked for: what the sheaf of that size does on a split.

    at: gives the sheaf of a density; or scores of the edges, of which the largest are taken.
    ablation, reference: what the sheaves were found under, and its values (`reference_for`).
    """
    rows = []
    for size in sizes:
        sheaf = at(size) if callable(at) else by_score(model, at, size, ablation)
        found = evaluate(model, sheaf, split, reference=reference)
        rows.append({"asked_density": size, "edges": sheaf.kept_edges, **found.as_dict()})
    return pd.DataFrame(rows)
