"""The residual stream, unrolled: every sender's output kept apart.

An edge mask says who reads whom, so each receiver sums its own kept senders: one matrix product
(receivers x senders) @ (senders x d_model) per token. Nearly all the time of a search is spent
here. Shapes as in `stream`.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from discogp_lib.graph import Group
from discogp_lib.norm import Norm
from discogp_lib.scratch import SCRATCH, Loan

CACHE_FLOATS = 1 << 19
"""Mixed activations are worked on in pieces of about this many numbers (2 MB)."""

LARGE_PRODUCT = 500_000
"""From this many multiplications per token on, a product per token is as fast as a batched one
and can add to its result in place; below, calling it for each token costs more than it does."""


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
        """Each receiver's own sum, under its own norm.

        A single MLP would have to go through all that was ever written for one row of the
        product, so the heads before it read that row for it, but for what they write themselves.
        """
        first = self.buffer.n_ahead if group.kind == "mlp" else 0
        if group.followed:
            matrix = group.matrix_ahead(self.edge_masks)
        else:
            matrix = group.matrix(self.edge_masks)[..., first:]
        return _Read.apply(self.order, matrix, weight, bias, norm, self.buffer, first)

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
        self.ahead: tuple[int, Tensor] | None = None
        """What heads have read for the MLP that follows: how many senders, and their sum."""
        self.ahead_gradient: Tensor | None = None
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

    @property
    def n_ahead(self) -> int:
        """How many senders the next MLP's sum holds already."""
        return 0 if self.ahead is None else self.ahead[0]

    def mix(self, matrix: Tensor, tokens: slice, first: int = 0) -> Tensor:
        """Each receiver's sum (token, receiver, d_model) at some tokens.

        The matrix is over the senders from `first` on.
        """
        outputs = self.outputs[tokens, first : first + matrix.shape[2]]
        return torch.bmm(_per_token(matrix, self, tokens), outputs)

    def complete(self, mixed: Tensor, tokens: slice, first: int) -> None:
        """Add to the sums what was read ahead, and what cut edges carry."""
        if first and self.ahead is not None:
            mixed += self.ahead[1][tokens]
        if self.base is not None:
            mixed += self.base[tokens].unsqueeze(1)

    def exchange_ahead(self, to_mixed: Tensor, n_receivers: int, tokens: slice, first: int) -> None:
        """Hand an MLP's gradient on to the heads that have read ahead for it, or take it there."""
        if first:
            if self.ahead_gradient is None:
                self.ahead_gradient = torch.empty_like(self.outputs[:, :1])
            self.ahead_gradient[tokens] = to_mixed
        elif to_mixed.shape[1] > n_receivers and self.ahead_gradient is not None:
            to_mixed[:, n_receivers:] = self.ahead_gradient[tokens]

    def unmix(self, matrix: Tensor, grad: Tensor, tokens: slice, first: int = 0) -> None:
        """Add the gradient of `mix` to the senders' gradients."""
        upstream = self.gradients()[tokens, first : first + matrix.shape[2]]
        transposed = _per_token(matrix, self, tokens).transpose(1, 2)
        if matrix.shape[1] == 1:
            upstream.addcmul_(transposed, grad)
        elif matrix[0].numel() * upstream.shape[2] >= LARGE_PRODUCT:
            upstream.baddbmm_(transposed, grad)
        else:
            upstream += torch.bmm(transposed, grad)

    def matrix_gradient(
        self, matrix: Tensor, grad: Tensor, tokens: slice, first: int = 0
    ) -> Tensor:
        """Gradient of `mix` for the (single) matrix."""
        outputs = self.outputs[tokens, first : first + matrix.shape[2]]
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


def _folds(weight: Float[Tensor, "receiver d_model out"], n_tokens: int) -> bool:
    """Whether the norm's parameters go to the weights, or else to the activations."""
    return n_tokens > weight.shape[2]


def _laid_out_like(
    weight: Float[Tensor, "map row column"],
    left: Float[Tensor, "map row token"],
    right: Float[Tensor, "map token column"],
) -> Float[Tensor, "map row column"]:
    """left @ right, in the layout of the weight: added to its gradient in one straight pass."""
    if weight.stride(-1) == 1:
        return torch.bmm(left, right)
    return torch.bmm(right.transpose(1, 2), left.transpose(1, 2)).transpose(1, 2)


class _Read(torch.autograd.Function):
    """Sum each receiver's kept senders, norm, and project; all the large work of a layer.

    Mixed activations are never whole in memory: they are made, normed and (in the backward
    pass) differentiated a few tokens at a time, in the cache. Kept is the standardised input.

    A matrix with one row more than there are receivers also reads ahead for an MLP. That row
    goes through the norm with the others, since leaving it out would cost a copy of them.
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
        first: int,
    ) -> Tensor:
        n_receivers, d_model, _ = weight.shape
        n_tokens, n_rows = len(buffer.outputs), matrix.shape[1]
        standard = SCRATCH.lend((n_tokens, n_rows, d_model), weight)
        scale = weight.new_empty(n_tokens, n_rows, 1)
        ahead = weight.new_empty(n_tokens, n_rows - n_receivers, d_model)
        for tokens in buffer.chunks(n_rows):
            mixed = buffer.mix(matrix, tokens, first)
            ahead[tokens] = mixed[:, n_receivers:]
            buffer.complete(mixed, tokens, first)
            standard.tensor[tokens], scale[tokens] = norm.standardise(mixed)
        buffer.ahead = (matrix.shape[2], ahead) if n_rows > n_receivers else None
        ctx.norm, ctx.buffer, ctx.standard, ctx.first = norm, buffer, standard, first
        ctx.has_bias = bias is not None
        ctx.save_for_backward(matrix, weight, scale[:, :n_receivers])
        inputs = standard.tensor[:, :n_receivers]
        if _folds(weight, n_tokens):
            weight, bias = norm.fold(weight, bias)
        else:
            inputs = norm.affine(inputs)
        out = torch.bmm(inputs.transpose(0, 1), weight)
        return out if bias is None else out.add_(bias.unsqueeze(1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrix, weight, scale = ctx.saved_tensors
        norm, buffer, standard, first = ctx.norm, ctx.buffer, ctx.standard.tensor, ctx.first
        n_receivers = len(weight)
        _, needs_matrix, needs_weight, *_ = ctx.needs_input_grad
        folds = _folds(weight, len(standard))
        to_weight = to_bias = None
        if needs_weight:
            to_bias = grad.sum(1)
            inputs = standard[:, :n_receivers]
            inputs = inputs if folds else norm.affine(inputs)
            to_weight = _laid_out_like(weight, inputs.permute(1, 2, 0), grad)
            if folds:
                to_weight = norm.unfold(to_weight, to_bias)
        if needs_matrix:
            scale = buffer.audible(scale, norm, first + matrix.shape[2])
        # The norm's backward is linear in the gradient, so its scale goes on the smaller side.
        scaled = grad * scale.transpose(0, 1)
        to_normed = SCRATCH.lend(standard.shape, standard)
        to_inputs = to_normed.tensor[:, :n_receivers]
        if folds:
            weight, _ = norm.fold(weight, None)
        torch.bmm(scaled, weight.transpose(1, 2), out=to_inputs.transpose(0, 1))
        if not folds:
            to_inputs *= norm.weight
        to_matrix = torch.zeros_like(matrix) if needs_matrix else None
        for tokens in buffer.chunks(matrix.shape[1]):
            to_mixed = norm.unstandardise(to_normed.tensor[tokens], standard[tokens])
            buffer.exchange_ahead(to_mixed, n_receivers, tokens, first)
            buffer.unmix(matrix, to_mixed, tokens, first)
            if to_matrix is not None:
                to_matrix += buffer.matrix_gradient(matrix, to_mixed, tokens, first)
        to_bias = to_bias if ctx.has_bias else None
        return grad.new_zeros(()), to_matrix, to_weight, to_bias, None, None, None


class _Total(torch.autograd.Function):
    """Sum the kept senders of a single receiver, and no more."""

    @staticmethod
    def forward(ctx: Any, order: Tensor, matrix: Tensor, buffer: _Buffer) -> Tensor:
        ctx.buffer = buffer
        ctx.save_for_backward(matrix)
        everywhere = slice(0, len(buffer.outputs))
        mixed = buffer.mix(matrix, everywhere)
        buffer.complete(mixed, everywhere, 0)
        return mixed.squeeze(1)

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
            _laid_out_like(weight, x.transpose(1, 2), out) if needs_weight else None,
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
