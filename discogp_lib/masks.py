"""Learnable binary masks: Gumbel-sigmoid samples with the straight-through estimator.

A mask with logit l is drawn as the paper's equations say,

    s = sigmoid((l - log(log U1 / log U2)) / tau),    m = 1[s > 1/2],    dm/dl := ds/dl.

The difference of two Gumbel variables is logistic, so one uniform U serves for two:
s = sigmoid((l + log(U / (1 - U))) / tau). The mask is hard in the forward pass, and its
probability of being on is sigmoid(l) whatever the temperature. For deep models the noise may be
turned down, s = sigmoid((l + c log(U / (1 - U))) / tau) with a share c of it, so that what is
drawn is nearer to the mask that is kept, l > 0.

The noise is not drawn from a running generator but computed from (seed, step, position) by an
integer hash: a search that is interrupted and resumed, or evaluated in between, sees the same
noise, bit for bit, and nothing has to be stored for it, not even between a sample and its
gradient.

Sampling, the straight-through gradient, the sparsity gradient and Adam are element-wise over up
to a hundred million logits, so each of the two passes over them is one function, compiled into
one loop where a compiler is at hand.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's usual constants."""

COMPILE_FROM = 200_000
"""Below this many logits compiling takes longer than it saves."""

CHUNK = 1 << 17
"""Uncompiled, the passes work on pieces of this many logits, which fit a core's cache."""


@dataclass
class MaskLogits:
    """Logits of one kind of mask over a vector of values, with their sampler and optimiser."""

    values: Float[Tensor, " mask"]
    """What is masked: the weights, or ones for edges."""
    logits: Float[Tensor, " mask"]
    temperature: float
    seed: int
    """Seed of the noise; give different kinds of mask different seeds."""
    first_moment: Float[Tensor, " mask"]
    second_moment: Float[Tensor, " mask"]

    @classmethod
    def start(
        cls,
        values: Float[Tensor, " mask"],
        logit: float,
        temperature: float,
        seed: int,
    ) -> MaskLogits:
        """All logits at one value."""
        return cls(
            values=values,
            logits=torch.full_like(values, logit),
            temperature=temperature,
            seed=seed,
            first_moment=torch.zeros_like(values),
            second_moment=torch.zeros_like(values),
        )

    def sample(self, step: int, out: Float[Tensor, " mask"], noise: float = 1.0) -> None:
        """Draw the masks of a step with a share of the noise; `out` becomes the masked values."""
        scalars = (*noise_keys(self.seed, step), *_turned_down(noise))
        _apply(_sample_chunk, [self.logits, self.values, out], scalars)

    def update(
        self,
        grad: Float[Tensor, " mask"],
        step: int,
        learning_rate: float,
        push: float,
        noise: float = 1.0,
    ) -> None:
        """One Adam step on the logits.

        grad: gradient of the loss for the *masked values* of this step's sample.
        push: derivative of the objective for each mask's probability (the sparsity term).
        noise: the share of it that the sample was drawn with.
        """
        corrections = 1 / (1 - BETA1 ** (step + 1)), 1 / (1 - BETA2 ** (step + 1))
        _apply(
            _update_chunk,
            [self.logits, self.first_moment, self.second_moment, self.values, grad],
            (*noise_keys(self.seed, step), learning_rate, push, *corrections, *_turned_down(noise)),
            temperature=self.temperature,
        )

    def hard(self) -> Bool[Tensor, " mask"]:
        """The deterministic mask: on where the logit is positive."""
        return self.logits > 0

    def density(self) -> float:
        """Share of the deterministic mask that is on, counted without a copy of the mask."""
        pieces, count = self.logits.split(CHUNK), _count_on
        # Where the masks were drawn by a compiled loop, they are counted by one.
        if _COMPILED.get(_sample_chunk) and len(self.logits) >= COMPILE_FROM:
            pieces, count = (self.logits,), _compiled(_count_on) or _count_on
        return sum(int(count(piece)) for piece in pieces) / len(self.logits)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to keep; the last sample is not part of it."""
        return {
            "logits": self.logits,
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
        }


def complement(values: Float[Tensor, " mask"], masked: Float[Tensor, " mask"]) -> None:
    """Turn masked values into those of the reverse mask: exactly one minus the same sample."""
    torch.sub(values, masked, out=masked)


def noise_keys(seed: int, step: int) -> tuple[int, int]:
    """Two 32-bit keys for the noise of one step."""
    digest = hashlib.sha256(f"{seed}:{step}".encode()).digest()
    first, second = digest[:4], digest[4:8]
    return int.from_bytes(first, "big", signed=True), int.from_bytes(second, "big", signed=True)


def _scramble(x: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """A well-mixed permutation of the 32-bit integers (two multiply-xorshift rounds)."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * -0x7B935975
    return x ^ ((x >> 16) & 0xFFFF)


def uniform(index: Int[Tensor, " n"], key: Any, again: Any) -> Float[Tensor, " n"]:
    """Uniform numbers in (0, 1), a pure function of position and keys."""
    bits = _scramble(_scramble(index ^ key) + again)
    # 23 bits and a half: one more would be rounded, at the upper end to one.
    return ((bits >> 9) & 0x7FFFFF).float() * 2.0**-23 + 2.0**-24


def _turned_down(noise: float) -> tuple[float, ...]:
    """The noise's share as an argument of the passes, which need none where it is whole."""
    return () if noise == 1 else (noise,)


def _odds_against(offset: Any, logits: Tensor, key: Any, again: Any, noise: Any) -> Tensor:
    """Odds of "off" under a step's noise: a mask is on exactly where they are below one."""
    index = torch.arange(len(logits), device=logits.device, dtype=torch.int32) + offset
    u = uniform(index, key, again)
    if noise is None:
        return torch.exp(-logits) * (1 - u) / u
    return torch.exp(noise * torch.log((1 - u) / u) - logits)


def _count_on(logits: Float[Tensor, " n"]) -> Int[Tensor, ""]:
    return (logits > 0).sum()


def _sample_chunk(
    offset: Any,
    logits: Tensor,
    values: Tensor,
    out: Tensor,
    key: Any,
    again: Any,
    noise: Any = None,
) -> None:
    out.copy_(values * (_odds_against(offset, logits, key, again, noise) < 1))


def _update_chunk(
    offset: Any,
    logits: Tensor,
    first: Tensor,
    second: Tensor,
    values: Tensor,
    grad: Tensor,
    key: Any,
    again: Any,
    learning_rate: Any,
    push: Any,
    first_correction: Any,
    second_correction: Any,
    noise: Any = None,
    *,
    temperature: float,
) -> None:
    against = _odds_against(offset, logits, key, again, noise)
    if temperature != 1:
        against = against ** (1 / temperature)
    on = 1 / (1 + against)
    p = torch.sigmoid(logits)
    g = grad * values * (on * (1 - on) / temperature) + push * p * (1 - p)
    m = first + (g - first) * (1 - BETA1)
    v = second + (g * g - second) * (1 - BETA2)
    step = learning_rate * (m * first_correction) / (torch.sqrt(v * second_correction) + EPSILON)
    first.copy_(m)
    second.copy_(v)
    logits.copy_(logits - step)


_COMPILED: dict[Callable[..., Any], Callable[..., Any] | None] = {}


def _apply(
    function: Callable[..., None],
    vectors: list[Tensor],
    scalars: tuple[int | float, ...],
    **constants: float,
) -> None:
    """Run an element-wise function in place over vectors, compiled if they are large.

    The function is told at which position its piece begins, then the vectors and scalars.
    """
    n, device = len(vectors[0]), vectors[0].device
    if n >= COMPILE_FROM and (fast := _compiled(function)) is not None:
        # As tensors, scalars are arguments of the compiled loop and not constants in it.
        as_tensors = [
            torch.tensor(s, device=device, dtype=torch.int32 if isinstance(s, int) else None)
            for s in (0, *scalars)
        ]
        try:
            fast(as_tensors[0], *vectors, *as_tensors[1:], **constants)
            return
        except Exception as error:  # no compiler, or one that does not work here
            _COMPILED[function] = None
            warnings.warn(
                f"Searching goes on several times slower than it could: torch.compile failed "
                f"({type(error).__name__}). A C++ compiler such as g++ is what it needs.",
                stacklevel=2,
            )
    size = CHUNK if device.type == "cpu" else n
    for i in range(0, n, size):
        function(i, *(v[i : i + size] for v in vectors), *scalars, **constants)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function as one fused loop, or None where that has failed before."""
    if function not in _COMPILED:
        _COMPILED[function] = torch.compile(function, dynamic=False)
    return _COMPILED[function]
