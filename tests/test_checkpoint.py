"""A checkpoint is this search's and whole, or it is none."""

import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from discogp_lib import checkpoint
from discogp_lib.checkpoint import SearchCheckpoint, seconds_of_earlier_processes
from discogp_lib.errors import RunError

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


def test_on_a_full_disk_the_last_one_stays(
    store: SearchCheckpoint, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(RunError, match="make room on the disk"):
        store.save(TENSORS, {**STATE, "step": 8})
    assert store.load().state == STATE
    assert [p.name for p in store.path.parent.iterdir()] == ["search.0"]


def test_absent_is_none(store: SearchCheckpoint):
    store.path.unlink(missing_ok=True)
    assert store.load() is None


def test_that_of_another_format_is_none(store: SearchCheckpoint, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 0)
    older = SearchCheckpoint(store.path, ["model", "task", 0])
    older.save(TENSORS, STATE)
    assert store.load() is None
    assert older.load() is not None


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


def test_time_is_that_of_all_processes(store: SearchCheckpoint, monkeypatch: pytest.MonkeyPatch):
    def clock_reads(wall: float, cpu: float) -> None:
        monkeypatch.setattr(time, "perf_counter", lambda: wall)
        monkeypatch.setattr(time, "process_time", lambda: cpu)

    inputs = ["model", "task", 0]
    clock_reads(100.0, 50.0)
    first = SearchCheckpoint(store.path, inputs)
    clock_reads(107.0, 54.0)
    first.save(TENSORS, STATE)
    assert seconds_of_earlier_processes([store.path]) == {"wall": 0.0, "cpu": 0.0}

    clock_reads(3.0, 1.0)  # another process, which is stopped too
    for seconds in (7.0, 12.0):
        again = SearchCheckpoint(store.path, inputs)
        assert again.load() is not None
        again.save(TENSORS, STATE)
        assert seconds_of_earlier_processes([store.path])["wall"] == seconds
        clock_reads(8.0, 2.0)
        again.save(TENSORS, STATE)
    assert again.earlier == {"wall": 12.0, "cpu": 5.0}


def test_time_of_other_searches_does_not_count(
    store: SearchCheckpoint, monkeypatch: pytest.MonkeyPatch
):
    damaged = store.path.with_name("search.1")
    damaged.write_bytes(b"not a checkpoint")
    again = SearchCheckpoint(store.path, ["model", "task", 0])
    again.load()
    again.save(TENSORS, STATE)
    both = seconds_of_earlier_processes([store.path, damaged])
    assert both == again.earlier
    assert both["wall"] > 0
    monkeypatch.setattr(checkpoint, "PROCESS", "another")
    assert seconds_of_earlier_processes([store.path, damaged])["wall"] == 0
