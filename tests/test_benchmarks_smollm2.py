"""The benchmark of a real model's step, on a tiny one: every part runs, and they are a step."""

import os

import torch

from benchmarks import smollm2
from tests.reference import masked, random_llama


def test_every_part_of_a_step_is_measured(monkeypatch):
    monkeypatch.setattr(smollm2, "load_model", lambda name: masked(random_llama()))
    threads = torch.get_num_threads()
    frame = smollm2.measure(rounds=1)
    assert torch.get_num_threads() == threads
    assert set(frame["cores"]) == {1, os.cpu_count() or 1}
    for _, rows in frame.groupby("cores"):
        named = rows.set_index("part")
        assert set(named.index) == {"masks drawn", "forward", "backward", "masks updated", "step"}
        assert named.loc["step", "share"] == 1
        assert (named.drop(index="backward")["seconds"] > 0).all()
