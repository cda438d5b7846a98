"""The residual stream: what receivers read of what senders wrote.

Every stream has the same two verbs. `read` sums what a group of receivers sees, applies the norm
and projects; `write` projects a node's activations and puts them into the stream. Here is the
ordinary running sum, for when every edge is kept; `unrolled.UnrolledStream` keeps every sender's
output apart, so that each receiver can sum its own kept senders.

Shapes: `token` runs over batch x position (one flat axis), `sender` and `receiver` over the
graph. With several edge masks at once the batch is that many equal parts, one for each mask.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from discogp_lib.graph import Group
from discogp_lib.norm import Norm


@runtime_checkable
class Stream(Protocol):
    """What a layer needs of the stream it reads from and writes to."""

    def read(
        self,
        group: Group,
        norm: Norm,
        weight: Float[Tensor, "receiver d_model out"],
        bias: Float[Tensor, "receiver out"] | None,
    ) -> Float[Tensor, "receiver token out"]:
        """Each receiver's sum of its senders, normed and projected."""

    def total(self, group: Group) -> Float[Tensor, "token d_model"]:
        """The sum that a single receiver sees, before any norm."""

    def write(
        self,
        first: int,
        x: Float[Tensor, "sender token inner"],
        weight: Float[Tensor, "sender inner d_model"],
        bias: Float[Tensor, " d_model"] | None,
    ) -> None:
        """Put x @ weight + bias into the stream; senders written together share the bias."""

    def narrow(self, tokens: Int[Tensor, " kept"]) -> Stream:
        """The same stream at some tokens only."""


class ResidualStream:
    """Every edge kept: one running sum, read by all receivers alike."""

    def __init__(self, start: Float[Tensor, "token d_model"]) -> None:
        self.sum = start

    def read(
        self,
        group: Group,
        norm: Norm,
        weight: Float[Tensor, "receiver d_model out"],
        bias: Float[Tensor, "receiver out"] | None,
    ) -> Float[Tensor, "receiver token out"]:
        """The sum, normed once and projected for all receivers in one product."""
        joined = norm(self.sum) @ weight.transpose(0, 1).flatten(1)
        out = joined.unflatten(1, (len(weight), -1)).transpose(0, 1)
        return out if bias is None else out + bias.unsqueeze(1)

    def total(self, group: Group) -> Float[Tensor, "token d_model"]:
        """The running sum itself."""
        return self.sum

    def write(
        self,
        first: int,
        x: Float[Tensor, "sender token inner"],
        weight: Float[Tensor, "sender inner d_model"],
        bias: Float[Tensor, " d_model"] | None,
    ) -> None:
        """Add all senders at once: one product over (sender x inner)."""
        out = x.transpose(0, 1).flatten(1) @ weight.flatten(0, 1)
        self.sum = self.sum + (out if bias is None else out + bias)

    def narrow(self, tokens: Int[Tensor, " kept"]) -> ResidualStream:
        """The running sum at some tokens."""
        return ResidualStream(self.sum[tokens])
