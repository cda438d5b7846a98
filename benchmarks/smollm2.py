"""Where the time of a search in a real language model goes: the parts of one joint step.

SmolLM2-135M (106 million maskable weights, 70,651 edges) with the settings of its profile, on
random prompts as long as those of IOI: masks drawn, forward, backward, masks updated, and a step
as a whole, on one core and on all; wall seconds, the least of the rounds. From these the time of
a search of 300 steps.

    python -m benchmarks.smollm2              the table in results/benchmarks/smollm2.csv
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import pandas as pd
import torch

from benchmarks.step import KINDS, random_task
from discogp_lib.learner import Learner
from discogp_lib.model import load_model
from discogp_lib.paths import RESULTS, atomic_path
from discogp_lib.profiles import get_profile
from discogp_lib.sheaf import Sheaf

TOKENS = 18
"""About as long as a prompt of IOI."""


def parts(learner: Learner) -> dict[str, Callable[[], None]]:
    """The parts of a step, each by itself; the backward pass is with its forward."""
    batch, full = learner.train, learner.full_states

    def draw() -> None:
        for kind in learner.kinds:
            learner.masks[kind].sample(0, learner.sample[kind])

    def forward() -> None:
        with torch.no_grad():
            learner._states(batch)

    def both_passes() -> None:
        learner._sheaf_step(batch, full)

    def update() -> None:
        for kind in learner.kinds:
            learner.masks[kind].update(learner.grads[kind], 0, 0.0, learner._push(kind, 0))

    def step() -> None:
        learner.step(0)

    return {
        "masks drawn": draw,
        "forward": forward,
        "forward and backward": both_passes,
        "masks updated": update,
        "step": step,
    }


def least_seconds(work: Callable[[], None], rounds: int) -> float:
    """Least wall time, after one round that warms up."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def measure(rounds: int) -> pd.DataFrame:
    """Seconds of each part, on one core and on all."""
    profile = get_profile("smollm2")
    model = load_model(profile.model)
    task = random_task(model.vocabulary_size, profile.search.batch_size, TOKENS)
    search, full = profile.search, Sheaf.full(model)
    learner = Learner(model, task, search, 0, KINDS["joint"], search.steps, full)
    learner.begin()
    rows, before = [], torch.get_num_threads()
    for threads in dict.fromkeys((1, os.cpu_count() or 1)):
        torch.set_num_threads(threads)
        found = {name: least_seconds(work, rounds) for name, work in parts(learner).items()}
        found["backward"] = found["forward and backward"] - found["forward"]
        for name in ("masks drawn", "forward", "backward", "masks updated", "step"):
            share = found[name] / found["step"]
            rows.append({"cores": threads, "part": name, "seconds": found[name], "share": share})
        minutes = search.steps * found["step"] / 60
        print(f"{threads} core(s): {search.steps} steps take {minutes:.1f} min", flush=True)
    torch.set_num_threads(before)
    return pd.DataFrame(rows)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    frame = measure(parser.parse_args().rounds)
    with atomic_path(RESULTS / "benchmarks" / "smollm2.csv") as path:
        frame.to_csv(path, index=False, float_format="%.3f", lineterminator="\n")
    print(frame.round(2).to_string(index=False))


if __name__ == "__main__":
    main()
