"""Large blocks of memory, lent and taken back.

A search step needs the same few large blocks again and again. Asking the system for them anew
each time costs as much as the arithmetic done in them (every page is mapped and cleared), so on
the CPU they are kept here between steps. On other devices torch keeps them itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

SMALL = 1 << 20
"""Blocks below this many numbers (4 MB) are left to the ordinary allocator."""


class Loan:
    """A block in use; its memory goes back when the last holder drops the loan."""

    def __init__(self, tensor: Tensor, owner: Scratch | None) -> None:
        self.tensor = tensor
        self._owner = owner

    def __del__(self) -> None:
        if self._owner is not None:
            self._owner.take_back(self.tensor)


class Scratch:
    """Free blocks of memory of one process; never more than were in use at once."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []
        self._lock = threading.RLock()  # a loan may end wherever garbage is collected, even in here

    def lend(self, shape: Sequence[int], like: Tensor) -> Loan:
        """A block of the given shape, its contents arbitrary."""
        size = torch.Size(shape)
        n = size.numel()
        if like.device.type != "cpu" or n < SMALL:
            return Loan(like.new_empty(size), None)
        with self._lock:
            fitting = [b for b in self._free if n <= b.numel() <= 2 * n and b.dtype == like.dtype]
            block = min(fitting, key=Tensor.numel, default=None)
            # By identity: comparing tensors compares their contents.
            self._free = [b for b in self._free if b is not block]
            if block is None:
                # What is free does not fit: shapes have changed, so let it go.
                self._free.clear()
        if block is None:
            block = like.new_empty(n)
        return Loan(block[:n].view(size), self)

    def take_back(self, tensor: Tensor) -> None:
        """Keep the block behind a lent tensor for the next one who asks."""
        block = tensor.new_empty(0).set_(tensor.untyped_storage())
        with self._lock:
            self._free.append(block)


SCRATCH = Scratch()
