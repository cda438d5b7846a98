"""The norms that stand before every read: whole, and taken apart for a pass of one's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


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

    def affine(self, standard: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The norm's own parameters, applied to its standardised input."""
        if self.bias is None:
            return standard * self.weight
        return torch.addcmul(self.bias, standard, self.weight)

    def fold(
        self,
        weight: Float[Tensor, "receiver d_model out"],
        bias: Float[Tensor, "receiver out"] | None,
    ) -> tuple[Float[Tensor, "receiver d_model out"], Float[Tensor, "receiver out"] | None]:
        """Norm and linear map as one map of the standardised input.

        (x g + b) W + c = x (g W) + (b W + c): where there are more tokens than outputs, the
        norm's own parameters are applied faster to the weights than to the activations.
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
