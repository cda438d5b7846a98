"""The residual stream, unrolled: what receivers read of what senders wrote.

Both streams here have the same two verbs. `read` sums what a group of receivers sees, applies
the norm and projects; `write` projects a node's activations and puts them into the stream.

* `UnrolledStream` keeps every sender's output apart, so that each receiver can sum its own
  kept senders: one matrix product (receivers x senders) @ (senders x d_model) per token.
* `ResidualStream` is the ordinary running sum, for when every edge is kept.

Shapes: `token` runs over batch x position (one flat axis), `sender` and `receiver` over the
graph. With several edge masks at once the batch is that many equal parts, one for each mask.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from discogp_lib.graph import Group
from discogp_lib.scratch import SCRATCH, Loan

CACHE_FLOATS = 1 << 19
"""Mixed activations are worked on in pieces of about this many numbers (2 MB)."""

LARGE_PRODUCT = 500_000
"""From this many multiplications per token on, a product per token is as fast as a batched one
and can add to its result in place; below, calling it for each token costs more than it does."""


@dataclass(frozen=True)
class Norm:
    """A LayerNorm (with bias) or an RMSNorm (without); its parameters are never masked."""

    weight: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"] | None
    eps: float

    @property
    def centred(self) -> bool:
        """LayerNorm subtracts the mean, RMSNorm does not."""
        return self.bias is not None

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The whole norm, differentiable by autograd."""
        shape = (x.shape[-1],)
        if self.bias is None:
            return torch.rms_norm(x, shape, self.weight, self.eps)
        return torch.layer_norm(x, shape, self.weight, self.bias, self.eps)

    def standardise(
        self, x: Float[Tensor, "*batch d_model"]
    ) -> tuple[Float[Tensor, "*batch d_model"], Float[Tensor, "*batch 1"]]:
        """The input at unit scale, and the factor that brought it there."""
        if self.centred:
            standard, _, scale = torch.native_layer_norm(x, (x.shape[-1],), None, None, self.eps)
            return standard, scale
        scale = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(self.eps).rsqrt_().unsqueeze(-1)
        return x * scale, scale

    def unstandardise(
        self, grad: Float[Tensor, "*batch d_model"], standard: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_model"]:
        """Gradient through `standardise`, but for the factor: without what rescaling cancels."""
        d_model = standard.shape[-1]
        if self.centred:
            zeros = standard.new_zeros((*standard.shape[:-1], 1))
            return torch.ops.aten.native_layer_norm_backward(
                grad, standard, [d_model], zeros, zeros + 1, None, None, [True, False, False]
            )[0]
        along = torch.linalg.vecdot(grad, standard).div_(d_model).unsqueeze(-1)
        return torch.addcmul(grad, standard, along, value=-1)

    def fold(
        self,
        weight: Float[Tensor, "receiver d_model out"],
        bias: Float[Tensor, "receiver out"] | None,
    ) -> tuple[Float[Tensor, "receiver d_model out"], Float[Tensor, "receiver out"] | None]:
        """Norm and linear map as one map of the standardised input.

        (x g + b) W + c = x (g W) + (b W + c); weights are smaller than activations by the
        number of tokens, so the norm's own parameters go there for the moment of the product.
        """
        if self.bias is not None:
            shift = self.bias @ weight
            bias = shift if bias is None else bias + shift
        return weight * self.weight.unsqueeze(-1), bias

    def unfold(
        self,
        weight_grad: Float[Tensor, "receiver d_model out"],
        bias_grad: Float[Tensor, "receiver out"],
    ) -> Float[Tensor, "receiver d_model out"]:
        """Gradient of the weight, from those of the folded weight and bias."""
        weight_grad = weight_grad.mul_(self.weight.unsqueeze(-1))
        if self.bias is not None:
            weight_grad.addcmul_(self.bias.unsqueeze(-1), bias_grad.unsqueeze(1))
        return weight_grad


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


class UnrolledStream:
    """Every sender's output kept apart; an edge mask says who reads whom.

    Outputs live in one buffer (token, sender, d_model), and so do their gradients in the
    backward pass, instead of a concatenation that grows layer by layer. Autograd does not see
    the buffer; `order`, a scalar handed from operation to operation, makes the backward pass
    run in the exact reverse, so that a sender's gradient is complete when it is taken.

    With a `reference` the buffer holds outputs minus reference: a cut edge then carries the
    reference's value instead of nothing (mean and interchange ablation).
    """

    def __init__(
        self,
        start: Float[Tensor, "token d_model"],
        edge_masks: Float[Tensor, "mask edge"],
        n_senders: int,
        reference: Float[Tensor, "token sender d_model"] | None = None,
    ) -> None:
        self.edge_masks = edge_masks
        self.buffer = _Buffer(
            SCRATCH.lend((len(start), n_senders, start.shape[1]), start), reference
        )
        self.order = start.new_zeros((), requires_grad=torch.is_grad_enabled())
        self.buffer.outputs[:, 0] = start
        self.buffer.relate(0, 1)

    def read(
        self,
        group: Group,
        norm: Norm,
        weight: Float[Tensor, "receiver d_model out"],
        bias: Float[Tensor, "receiver out"] | None,
    ) -> Float[Tensor, "receiver token out"]:
        """Each receiver's own sum, under its own norm."""
        matrix = group.matrix(self.edge_masks)
        return _Read.apply(self.order, matrix, weight, bias, norm, self.buffer)

    def total(self, group: Group) -> Float[Tensor, "token d_model"]:
        """The only receiver's sum."""
        return _Total.apply(self.order, group.matrix(self.edge_masks), self.buffer)

    def write(
        self,
        first: int,
        x: Float[Tensor, "sender token inner"],
        weight: Float[Tensor, "sender inner d_model"],
        bias: Float[Tensor, " d_model"] | None,
    ) -> None:
        """Store each sender's output in its place; each takes an equal share of the bias."""
        self.order = _Write.apply(self.order, x, weight, bias, self.buffer, first)

    def narrow(self, tokens: Int[Tensor, " kept"]) -> UnrolledStream:
        """Copy the outputs so far at some tokens; gradients flow back to where they came from."""
        part = copy(self)
        part.buffer = self.buffer.at(tokens)
        part.order = _Narrow.apply(self.order, tokens, self.buffer, part.buffer)
        return part


class _Buffer:
    """The outputs of all senders and, in the backward pass, their gradients.

    Apart from the stream because autograd's nodes hold on to it: were it to hold the stream's
    `order` in turn, the cycle would keep the memory of every pass until a garbage collection.
    """

    def __init__(self, outputs: Loan, reference: Tensor | None) -> None:
        self._outputs = outputs
        self.outputs = outputs.tensor
        self.reference = reference
        self.base = None if reference is None else torch.zeros_like(self.outputs[:, 0])
        self._gradients: Loan | None = None
        self._whole: _Buffer | None = None

    def at(self, tokens: Tensor) -> _Buffer:
        """A copy at some tokens."""
        reference = None if self.reference is None else self.reference[tokens]
        part = _Buffer(Loan(self.outputs[tokens], None), reference)
        part.base = None if self.base is None else self.base[tokens]
        part._whole = self
        return part

    def relate(self, first: int, stop: int) -> None:
        """Turn the outputs just written into differences from the reference."""
        if self.reference is not None and self.base is not None:
            self.outputs[:, first:stop] -= self.reference[:, first:stop]
            self.base = self.base + self.reference[:, first:stop].sum(1)

    def gradients(self) -> Tensor:
        """The gradients, made when the backward pass first needs them."""
        if self._gradients is None:
            self._gradients = SCRATCH.lend(self.outputs.shape, self.outputs)
            self._gradients.tensor.zero_()
        return self._gradients.tensor

    def restart(self) -> None:
        """Forget the gradients of an earlier backward pass through the same graph."""
        self._gradients = None
        if self._whole is not None:
            self._whole.restart()

    def mix(self, matrix: Tensor, tokens: slice) -> Tensor:
        """Each receiver's sum (token, receiver, d_model) at some tokens."""
        mixed = torch.bmm(_per_token(matrix, self, tokens), self.outputs[tokens, : matrix.shape[2]])
        return mixed if self.base is None else mixed.add_(self.base[tokens].unsqueeze(1))

    def unmix(self, matrix: Tensor, grad: Tensor, tokens: slice) -> None:
        """Add the gradient of `mix` to the senders' gradients."""
        upstream = self.gradients()[tokens, : matrix.shape[2]]
        transposed = _per_token(matrix, self, tokens).transpose(1, 2)
        if matrix.shape[1] == 1:
            upstream.addcmul_(transposed, grad)
        elif matrix[0].numel() * upstream.shape[2] >= LARGE_PRODUCT:
            upstream.baddbmm_(transposed, grad)
        else:
            upstream += torch.bmm(transposed, grad)

    def matrix_gradient(self, matrix: Tensor, grad: Tensor, tokens: slice) -> Tensor:
        """Gradient of `mix` for the (single) matrix."""
        outputs = self.outputs[tokens, : matrix.shape[2]]
        return torch.bmm(grad, outputs.transpose(1, 2)).sum(0, keepdim=True)

    def audible(self, scale: Tensor, norm: Norm, n_senders: int) -> Tensor:
        """The norm's factors for the gradient, tamed where a receiver hears nothing.

        There the factor is 1 / sqrt(eps), hundreds of times what it is as soon as one edge is
        kept: true of an infinitely small share of an edge, but masks are zero or one. Adam
        would remember such a gradient for a thousand steps, and the mask would stand still.
        A silent receiver gets the factor of one that hears everybody instead.
        """
        silent = scale > (2 * norm.eps) ** -0.5
        if not silent.any():
            return scale
        _, everybody = norm.standardise(self.outputs[:, :n_senders].sum(1))
        return torch.where(silent, everybody.unsqueeze(1), scale)

    def chunks(self, n_receivers: int) -> list[slice]:
        """Runs of tokens whose mixed activations fit a core's cache."""
        n_tokens, _, d_model = self.outputs.shape
        size = n_tokens
        if self.outputs.device.type == "cpu":
            size = max(1, CACHE_FLOATS // (n_receivers * d_model))
        return [slice(i, min(i + size, n_tokens)) for i in range(0, n_tokens, size)]


def _per_token(matrix: Tensor, buffer: _Buffer, tokens: slice) -> Tensor:
    """Each token's mixing matrix; with several masks, each has an equal run of the tokens."""
    n_masks, n_tokens = len(matrix), len(buffer.outputs)
    if n_masks == 1:
        return matrix.expand(tokens.stop - tokens.start, -1, -1)
    run = n_tokens // n_masks
    which = torch.arange(tokens.start, tokens.stop, device=matrix.device) // run
    return matrix[which]


class _Read(torch.autograd.Function):
    """Sum each receiver's kept senders, norm, and project; all the large work of a layer.

    Mixed activations are never whole in memory: they are made, normed and (in the backward
    pass) differentiated a few tokens at a time, in the cache. Kept is the standardised input.
    """

    @staticmethod
    def forward(
        ctx: Any,
        order: Tensor,
        matrix: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        norm: Norm,
        buffer: _Buffer,
    ) -> Tensor:
        n_tokens, _, d_model = buffer.outputs.shape
        standard = SCRATCH.lend((n_tokens, len(weight), d_model), weight)
        scale = weight.new_empty(n_tokens, len(weight), 1)
        for tokens in buffer.chunks(len(weight)):
            standard.tensor[tokens], scale[tokens] = norm.standardise(buffer.mix(matrix, tokens))
        folded, shift = norm.fold(weight, bias)
        ctx.norm, ctx.buffer, ctx.standard, ctx.has_bias = norm, buffer, standard, bias is not None
        ctx.save_for_backward(matrix, weight, scale)
        out = torch.bmm(standard.tensor.transpose(0, 1), folded)
        return out if shift is None else out.add_(shift.unsqueeze(1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrix, weight, scale = ctx.saved_tensors
        norm, buffer, standard = ctx.norm, ctx.buffer, ctx.standard.tensor
        _, needs_matrix, needs_weight, *_ = ctx.needs_input_grad
        to_weight = to_bias = None
        if needs_weight:
            to_bias = grad.sum(1)
            to_folded = torch.bmm(grad.transpose(1, 2), standard.transpose(0, 1))
            to_weight = norm.unfold(to_folded.transpose(1, 2), to_bias)
        folded = norm.fold(weight, None)[0].transpose(1, 2)
        if needs_matrix:
            scale = buffer.audible(scale, norm, matrix.shape[2])
        # The norm's backward is linear in the gradient, so its scale goes on the smaller side.
        scaled = grad * scale.transpose(0, 1)
        to_normed = SCRATCH.lend(standard.shape, standard)
        torch.bmm(scaled, folded, out=to_normed.tensor.transpose(0, 1))
        to_matrix = torch.zeros_like(matrix) if needs_matrix else None
        for tokens in buffer.chunks(len(weight)):
            to_mixed = norm.unstandardise(to_normed.tensor[tokens], standard[tokens])
            buffer.unmix(matrix, to_mixed, tokens)
            if to_matrix is not None:
                to_matrix += buffer.matrix_gradient(matrix, to_mixed, tokens)
        return (
            grad.new_zeros(()),
            to_matrix,
            to_weight,
            to_bias if ctx.has_bias else None,
            None,
            None,
        )


class _Total(torch.autograd.Function):
    """Sum the kept senders of a single receiver, and no more."""

    @staticmethod
    def forward(ctx: Any, order: Tensor, matrix: Tensor, buffer: _Buffer) -> Tensor:
        ctx.buffer = buffer
        ctx.save_for_backward(matrix)
        return buffer.mix(matrix, slice(0, len(buffer.outputs))).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (matrix,) = ctx.saved_tensors
        everywhere = slice(0, len(grad))
        ctx.buffer.restart()  # every backward pass begins here
        ctx.buffer.unmix(matrix, grad.unsqueeze(1), everywhere)
        to_matrix = None
        if ctx.needs_input_grad[1]:
            to_matrix = ctx.buffer.matrix_gradient(matrix, grad.unsqueeze(1), everywhere)
        return grad.new_zeros(()), to_matrix, None


class _Write(torch.autograd.Function):
    """Project activations straight into the buffer."""

    @staticmethod
    def forward(
        ctx: Any,
        order: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        buffer: _Buffer,
        first: int,
    ) -> Tensor:
        ctx.buffer, ctx.first = buffer, first
        ctx.save_for_backward(x, weight)
        stop = first + len(x)
        slot = buffer.outputs[:, first:stop].transpose(0, 1)
        torch.bmm(x, weight, out=slot)
        if bias is not None:
            slot += bias / len(x)
        buffer.relate(first, stop)
        return order.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        out = ctx.buffer.gradients()[:, ctx.first : ctx.first + len(x)].transpose(0, 1)
        _, needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        return (
            grad,
            torch.bmm(out, weight.transpose(1, 2)) if needs_x else None,
            torch.bmm(x.transpose(1, 2), out) if needs_weight else None,
            # Over both at once it would take forty times as long.
            out.sum(1).sum(0).div_(len(x)) if needs_bias else None,
            None,
            None,
        )


class _Narrow(torch.autograd.Function):
    """Tie a narrowed stream to the whole one it was copied from."""

    @staticmethod
    def forward(ctx: Any, order: Tensor, tokens: Tensor, whole: _Buffer, part: _Buffer) -> Tensor:
        ctx.whole, ctx.part = whole, part
        ctx.save_for_backward(tokens)
        return order.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (tokens,) = ctx.saved_tensors
        ctx.whole.gradients().index_add_(0, tokens, ctx.part.gradients())
        return grad, None, None, None
