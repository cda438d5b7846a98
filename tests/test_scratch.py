"""Blocks go back when their last holder drops them, and are lent again."""

import gc

import pytest
import torch

from discogp_lib import scratch
from discogp_lib.scratch import Scratch

LIKE = torch.zeros(1)


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scratch, "SMALL", 0)


def address(loan) -> int:
    return loan.tensor.untyped_storage().data_ptr()


def test_block_is_lent_again_in_another_shape():
    store = Scratch()
    loan = store.lend((4, 6), LIKE)
    assert loan.tensor.shape == (4, 6)
    first = address(loan)
    del loan
    again = store.lend((2, 3, 3), LIKE)
    assert again.tensor.shape == (2, 3, 3)
    assert address(again) == first


def test_block_in_use_is_not_lent_twice():
    store = Scratch()
    one, two = store.lend((8,), LIKE), store.lend((8,), LIKE)
    one.tensor.fill_(1)
    two.tensor.fill_(2)
    assert bool((one.tensor == 1).all())
    assert address(one) != address(two)


def test_smallest_fitting_block_is_taken_and_no_wasteful_one():
    store = Scratch()
    loans = [store.lend((n,), LIKE) for n in (10, 14, 100)]
    places = [address(loan) for loan in loans]
    del loans
    assert address(store.lend((9,), LIKE)) == places[0]
    twelve = store.lend((12,), LIKE)
    assert address(twelve) == places[1]
    small = store.lend((20,), LIKE)  # 100 would fit five times over
    assert address(small) not in places


def test_other_types_get_their_own_blocks():
    store = Scratch()
    store.lend((8,), LIKE)  # dropped at once
    assert store.lend((8,), LIKE.double()).tensor.dtype == torch.float64


def test_blocks_that_no_longer_fit_are_let_go():
    store = Scratch()
    store.lend((8,), LIKE)
    store.lend((1000,), LIKE)
    assert [block.numel() for block in store._free] == [1000]


def test_a_loan_may_end_while_another_is_made():
    """As when garbage is collected just then, in the same thread: it must not wait for itself."""
    store = Scratch()
    with store._lock:
        store.lend((8,), LIKE)  # dropped at once
    assert [block.numel() for block in store._free] == [8]


def test_never_more_blocks_than_were_in_use_at_once():
    store = Scratch()
    gc.disable()
    try:
        for _ in range(20):
            loans = [store.lend((8,), LIKE) for _ in range(3)]
            del loans
        assert len(store._free) == 3
    finally:
        gc.enable()


def test_small_blocks_are_left_to_the_allocator(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scratch, "SMALL", 100)
    store = Scratch()
    assert store.lend((99,), LIKE).tensor.shape == (99,)
    assert not store._free
