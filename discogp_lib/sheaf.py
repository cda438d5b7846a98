"""Sheaf: one binary mask over edges and one over weights, frozen.

The algebra is that of sets: `a | b` composes two sheaves, `a & b` is what they share, `a - b`
what only the first has, `~a` the complement (both masks reversed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from discogp_lib.errors import SheafError
from discogp_lib.layout import Layout
from discogp_lib.posthoc import prune
from discogp_lib.sheaf_file import read_sheaf, write_sheaf

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer
    from discogp_lib.tasks.base import Task


class Overlap(NamedTuple):
    """Intersection over union of two sheaves, for each kind of mask."""

    edges: float
    weights: float


@dataclass(frozen=True, eq=False, repr=False)
class Sheaf:
    """The edges and weights of one model that are kept; all else is cut.

    Its masks are not to be changed in place: `dataclasses.replace` makes another sheaf.
    """

    layout: Layout
    """Shape of the model that the masks belong to."""
    model_name: str
    checkpoint_sha256: str
    """Identity of the model's weights."""
    edge_mask: Bool[Tensor, " edge"]
    """In the order of `graph.edges`."""
    weight_masks: Mapping[str, Tensor]
    """Bool masks with the names and shapes of `model.weights`."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Where the sheaf comes from: task, method, seed, config, whatever its maker wrote down."""

    def __post_init__(self) -> None:
        if self.edge_mask.dtype != torch.bool or self.edge_mask.shape != (self.n_edges,):
            raise SheafError(
                f"The edge mask must be a bool vector of {self.n_edges:,} edges, "
                f"not {self.edge_mask.dtype} of shape {tuple(self.edge_mask.shape)}."
            )
        shapes = {name: tuple(mask.shape) for name, mask in self.weight_masks.items()}
        if shapes != self.layout.weight_shapes:
            raise SheafError("The weight masks must have the names and shapes of the model's.")
        if any(mask.dtype != torch.bool for mask in self.weight_masks.values()):
            raise SheafError("The weight masks must be bool tensors.")

    # -- making ---------------------------------------------------------------------------

    @classmethod
    def full(cls, model: MaskedTransformer) -> Sheaf:
        """The whole model."""
        return cls._constant(model, True)

    @classmethod
    def empty(cls, model: MaskedTransformer) -> Sheaf:
        """Nothing of the model."""
        return cls._constant(model, False)

    @classmethod
    def _constant(cls, model: MaskedTransformer, value: bool) -> Sheaf:
        return cls(
            layout=model.layout,
            model_name=model.name,
            checkpoint_sha256=model.checkpoint_sha256,
            edge_mask=torch.full((model.graph.n_edges,), value),
            weight_masks={n: torch.full(s, value) for n, s in model.layout.weight_shapes.items()},
        )

    # -- sizes ----------------------------------------------------------------------------

    @property
    def n_edges(self) -> int:
        """All edges of the model: the denominator of `edge_density`."""
        return self.layout.graph.n_edges

    @property
    def n_weights(self) -> int:
        """All maskable weights of the model: the denominator of `weight_density`."""
        return self.layout.n_weights

    @cached_property
    def kept_edges(self) -> int:
        """How many edges the sheaf keeps."""
        return int(self.edge_mask.sum())

    @property
    def flat_weight_mask(self) -> Bool[Tensor, " weight"]:
        """All weight masks as one vector, in checkpoint order."""
        return torch.cat([self.weight_masks[n].flatten() for n in self.layout.weight_shapes])

    @cached_property
    def kept_weights(self) -> int:
        """How many weights the sheaf keeps."""
        return sum(int(mask.sum()) for mask in self.weight_masks.values())

    @property
    def ablation(self) -> str:
        """What cut edges carried when it was found."""
        return self.metadata.get("config", {}).get("ablation", "zero")

    @property
    def edge_density(self) -> float:
        """Share of the model's edges that is kept."""
        return self.kept_edges / self.n_edges

    @property
    def weight_density(self) -> float:
        """Share of the model's maskable weights that is kept."""
        return self.kept_weights / self.n_weights

    @property
    def keeps_all_weights(self) -> bool:
        """Whether no weight is cut."""
        return self.kept_weights == self.n_weights

    @property
    def keeps_all_edges(self) -> bool:
        """Whether no edge is cut."""
        return self.kept_edges == self.n_edges

    @property
    def edges(self) -> tuple[str, ...]:
        """Names of the kept edges."""
        names = self.layout.graph.edges
        return tuple(names[i] for i in self.edge_mask.nonzero().flatten().tolist())

    def __repr__(self) -> str:
        about = "".join(
            f", {key}={self.metadata[key]!r}"
            for key in ("task", "method", "seed")
            if key in self.metadata
        )
        return (
            f"Sheaf({self.model_name!r}{about}, "
            f"edges={self.kept_edges:,} of {self.n_edges:,} ({self.edge_density:.2%}), "
            f"weights={self.kept_weights:,} of {self.n_weights:,} ({self.weight_density:.2%}))"
        )

    def _repr_html_(self) -> str:
        """The sheaf drawn, where a notebook shows it."""
        from discogp_lib.viewer import sheaf_html

        return sheaf_html(self)

    # -- algebra --------------------------------------------------------------------------

    def __or__(self, other: Sheaf) -> Sheaf:
        return self._combine(other, torch.logical_or)

    def __and__(self, other: Sheaf) -> Sheaf:
        return self._combine(other, torch.logical_and)

    def __sub__(self, other: Sheaf) -> Sheaf:
        return self._combine(other, lambda a, b: a & ~b)

    def __invert__(self) -> Sheaf:
        return replace(
            self,
            edge_mask=~self.edge_mask,
            weight_masks={name: ~mask for name, mask in self.weight_masks.items()},
            metadata=self._only_ablation,
        )

    def __eq__(self, other: object) -> bool:
        """Same model and same masks; where they come from does not matter."""
        if not isinstance(other, Sheaf):
            return NotImplemented
        return (
            self.layout == other.layout
            and self.checkpoint_sha256 == other.checkpoint_sha256
            and torch.equal(self.edge_mask, other.edge_mask)
            and all(torch.equal(m, other.weight_masks[n]) for n, m in self.weight_masks.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def _combine(self, other: Sheaf, how: Callable[[Tensor, Tensor], Tensor]) -> Sheaf:
        if not isinstance(other, Sheaf):
            return NotImplemented
        self.check_same_model(other.layout, other.checkpoint_sha256, other.model_name)
        if self.ablation != other.ablation:
            raise SheafError(
                f"One of the sheaves was found under {self.ablation} ablation, the other under "
                f"{other.ablation} ablation; together they have no meaning."
            )
        return replace(
            self,
            edge_mask=how(self.edge_mask, other.edge_mask),
            weight_masks={n: how(m, other.weight_masks[n]) for n, m in self.weight_masks.items()},
            metadata=self._only_ablation,
        )

    @property
    def _only_ablation(self) -> dict[str, Any]:
        """What is still true of a sheaf that was made from this one."""
        return {} if self.ablation == "zero" else {"config": {"ablation": self.ablation}}

    def complement(self) -> Sheaf:
        """What is left without the sheaf: `~sheaf`, but for a kind of mask that cuts nothing.

        Where only weights (or only edges) were searched, the other kind is whole in the sheaf
        and stays whole in its complement; reversing it would leave no model at all.
        """
        rest = ~self
        if self.keeps_all_weights:
            rest = replace(rest, weight_masks=self.weight_masks)
        if self.keeps_all_edges:
            rest = replace(rest, edge_mask=self.edge_mask)
        return rest

    def iou(self, other: Sheaf) -> Overlap:
        """Intersection over union of the kept edges and of the kept weights (1 if both empty)."""
        mine, theirs = (replace(sheaf, metadata={}) for sheaf in (self, other))
        both, either = mine & theirs, mine | theirs
        return Overlap(
            both.kept_edges / either.kept_edges if either.kept_edges else 1.0,
            both.kept_weights / either.kept_weights if either.kept_weights else 1.0,
        )

    def check_fits(self, model: MaskedTransformer) -> None:
        """Raise `SheafError` unless the sheaf was cut from this very model."""
        self.check_same_model(model.layout, model.checkpoint_sha256, model.name)

    def check_same_model(self, layout: Layout, checkpoint_sha256: str, name: str) -> None:
        """Raise `SheafError` unless the masks belong to this model."""
        if layout != self.layout or checkpoint_sha256 != self.checkpoint_sha256:
            raise SheafError(
                f"This sheaf belongs to the model {self.model_name!r} (checkpoint "
                f"{self.checkpoint_sha256[:12]}), not to {name!r} (checkpoint "
                f"{checkpoint_sha256[:12]}); load the model it was found in."
            )

    def check_cuts_to_zero(self) -> None:
        """Raise `SheafError` if what was cut carried something when the sheaf was found."""
        if self.ablation != "zero":
            raise SheafError(
                f"This sheaf was found under {self.ablation} ablation and is judged under it: call "
                f"evaluate with reference=dgp.reference_for({self.ablation!r}, model, task)."
            )

    # -- post-hoc pruning and files ---------------------------------------------------------

    def pruned(self) -> Sheaf:
        """Without the edges and weights that cannot change the logits (see `posthoc`).

        Under mean and interchange ablation that is none: whatever is cut carries something.
        """
        if self.ablation != "zero":
            return self
        edge_mask, weight_masks = prune(self.layout, self.edge_mask, self.weight_masks)
        return replace(self, edge_mask=edge_mask, weight_masks=weight_masks)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file with packed masks and JSON metadata."""
        write_sheaf(
            Path(path),
            layout=self.layout,
            model_name=self.model_name,
            checkpoint_sha256=self.checkpoint_sha256,
            edge_mask=self.edge_mask,
            weight_masks=self.weight_masks,
            metadata=self.metadata,
        )

    def export(
        self,
        path: str | Path,
        model: MaskedTransformer,
        *,
        task: Task | None = None,
        all_rows: bool = False,
    ) -> Path:
        """Write one file with which `standalone.py` runs the sheaf alone (see `export`)."""
        from discogp_lib.export import export

        return export(self, path, model, task=task, all_rows=all_rows)

    @classmethod
    def load(cls, path: str | Path) -> Sheaf:
        """Read a file written by `save`; a damaged or foreign file is a `SheafError`."""
        return cls(**read_sheaf(Path(path)))
