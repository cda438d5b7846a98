"""How much of what the full model does a circuit of each size does: the MIB track's curve.

For a metric m, here the logit of the right label minus the mean of the others',

    faithfulness f = (m(circuit) - m(empty)) / (m(model) - m(empty)),

at ten sizes from 0.1 to 100 % of the edges, the edges of largest absolute score first. CPR (circuit
performance ratio) is the area under f, CMD (circuit model distance) that of |1 - f|, both by
trapezoids over the share of edges, as the track computes them. Where nothing but edges is cut, f
at 100 % is 1. The empty circuit has no edges: under zero ablation the logits see only the final
norm of nothing, under interchange the corrupted prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from discogp_lib.errors import TaskError
from discogp_lib.evaluate import Reference, final_states, is_right, project_labels, share_of
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split

SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The sizes of the MIB circuit track, as shares of the edges."""


@dataclass(frozen=True)
class Faithfulness:
    """The curve of one ranking of the edges, and what it comes to."""

    curve: pd.DataFrame
    """One row per size: `share`, `edges`, `metric`, `faithfulness`, `accuracy`."""
    cpr: float
    """Area under f: 0.999 for the full model at every size, since the axis starts at 0.1 %."""
    cmd: float
    """Area between f and 1; 0 is best."""


def faithfulness_curve(
    model: MaskedTransformer,
    split: Split,
    scores: Float[Tensor, " edge"],
    *,
    reference: Reference | None = None,
) -> Faithfulness:
    """The curve of a method that gives every edge a score.

    reference: what cut edges carry, for instance the corrupted prompt's values (see `ablation`);
        nothing by default.
    """
    scale = _Scale(model, split, reference)
    order = scores.abs().sort(descending=True, stable=True).indices.cpu()
    rows = []
    for share in SIZES:
        mask = torch.zeros(len(order), dtype=torch.bool)
        mask[order[: int(share * len(order))]] = True
        rows.append({"share": share, **scale.row(replace(Sheaf.full(model), edge_mask=mask))})
    curve = pd.DataFrame(rows)
    f = curve["faithfulness"].to_numpy()
    return Faithfulness(curve, area(f), area(abs(1 - f)))


def faithfulness_of(
    model: MaskedTransformer, split: Split, sheaf: Sheaf, *, reference: Reference | None = None
) -> dict[str, float | int]:
    """The one point of a sheaf, at its own size, its weights masked too."""
    row = _Scale(model, split, reference).row(sheaf)
    return {"share": sheaf.edge_density, **row}


def area(values: Float[np.ndarray, " size"]) -> float:
    """Area under values at the ten sizes, by trapezoids."""
    return float(np.trapezoid(values, SIZES))


def label_difference(labels: Float[Tensor, "prompt label"], split: Split) -> float:
    """Logit of the right label minus the mean of the others', mean over prompts."""
    right = labels.gather(1, split.targets[:, None])[:, 0]
    others = (labels.sum(1) - right) / (labels.shape[1] - 1)
    return float((right - others).mean())


class _Scale:
    """From a sheaf to its place between no edges and the full model."""

    def __init__(self, model: MaskedTransformer, split: Split, reference: Reference | None) -> None:
        self.model, self.split, self.reference = model, split, reference
        full = Sheaf.full(model)
        empty = replace(full, edge_mask=~full.edge_mask)
        self.full, self.empty = (label_difference(self._labels(s), split) for s in (full, empty))
        if self.full == self.empty:
            raise TaskError(
                "Faithfulness has no scale here: with all edges and with none the model tells the "
                "labels apart equally well; choose prompts that the model can answer."
            )

    def row(self, sheaf: Sheaf) -> dict[str, float | int]:
        """What is to be said of one sheaf."""
        labels = self._labels(sheaf)
        metric = label_difference(labels, self.split)
        return {
            "edges": sheaf.kept_edges,
            "metric": metric,
            "faithfulness": (metric - self.empty) / (self.full - self.empty),
            "accuracy": share_of(is_right(labels, self.split.targets)),
        }

    def _labels(self, sheaf: Sheaf) -> Float[Tensor, "prompt label"]:
        states = final_states(self.model, self.split, sheaf, reference=self.reference)
        return project_labels(self.model, self.split, states)
