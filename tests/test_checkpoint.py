"""A checkpoint is this search's and whole, or it is none."""

from pathlib import Path

import pytest
import torch

from discogp_lib.checkpoint import SearchCheckpoint

TENSORS = {"weights.logits": torch.randn(50), "best.edges": torch.arange(9, dtype=torch.uint8)}
STATE = {"step": 7, "rank": [float("inf")], "curve": [{"step": 5.0}], "status": ""}


@pytest.fixture
def store(tmp_path: Path) -> SearchCheckpoint:
    store = SearchCheckpoint(tmp_path / "deep" / "search.0", ["model", "task", 0])
    store.save(TENSORS, STATE)
    return store


def test_everything_comes_back(store: SearchCheckpoint):
    saved = store.load()
    assert saved is not None
    assert saved.state == STATE
    assert saved.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(saved.tensors[name], tensor)
        assert saved.tensors[name].dtype == tensor.dtype


def test_views_and_gradients_do_not_matter(store: SearchCheckpoint):
    store.save({"x": torch.arange(6.0).view(2, 3).T.requires_grad_()}, STATE)
    assert torch.equal(store.load().tensors["x"], torch.arange(6.0).view(2, 3).T)


def test_last_one_counts(store: SearchCheckpoint):
    store.save(TENSORS, {**STATE, "step": 8})
    assert store.load().state["step"] == 8
    assert [p.name for p in store.path.parent.iterdir()] == ["search.0"]


def test_absent_or_removed_is_none(store: SearchCheckpoint):
    store.remove()
    store.remove()
    assert store.load() is None


def test_that_of_another_search_is_none(store: SearchCheckpoint):
    assert SearchCheckpoint(store.path, ["model", "task", 1]).load() is None
    assert SearchCheckpoint(store.path, ["model", "task", 0]).load() is not None


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9, 0.999])
def test_truncated_is_none(store: SearchCheckpoint, share):
    data = store.path.read_bytes()
    store.path.write_bytes(data[: int(len(data) * share)])
    assert store.load() is None


@pytest.mark.parametrize("garbage", [b"", b"not a checkpoint", b"\x00" * 200, b"\xff" * 200])
def test_garbage_is_none(store: SearchCheckpoint, garbage):
    store.path.write_bytes(garbage)
    assert store.load() is None


def test_interrupted_write_leaves_the_old_one(store: SearchCheckpoint, monkeypatch):
    def killed(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("discogp_lib.checkpoint.save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        store.save(TENSORS, {**STATE, "step": 8})
    assert store.load().state["step"] == 7
    assert [p.name for p in store.path.parent.iterdir()] == ["search.0"]
