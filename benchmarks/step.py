"""The cost of one search step, as a ratio to one fine-tuning step of the same model.

On a randomly initialised model of GPT-2 small's shape, batch 32 x 16 tokens, float32: an ordinary
fine-tuning step of the Hugging Face model (logits at the last position only, AdamW over all
parameters) against DiscoGP's joint, weight-only and edge-only steps (masks sampled, sheaf forward
and backward, complement forward and backward, sparsity, optimiser). All in one process, in turn,
so that whatever else the machine does falls on all alike; CPU seconds, the minimum of the rounds.

    python -m benchmarks.step                 the table and the figure in results/benchmarks/
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging as transformers_logging

from discogp_lib.checkpoints import Checkpoint
from discogp_lib.config import SearchConfig
from discogp_lib.learner import Kind, Learner
from discogp_lib.model import MaskedTransformer
from discogp_lib.paths import RESULTS
from discogp_lib.plots.style import (
    METHOD_COLOURS,
    METHOD_MARKERS,
    PAGE,
    house_style,
    label_panels,
    save_figure,
)
from discogp_lib.runs import peak_memory_mb
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split, Task

BATCH, TOKENS = 32, 16
KINDS: dict[str, tuple[Kind, ...]] = {
    "joint": ("weights", "edges"),
    "weight-only": ("weights",),
    "edge-only": ("edges",),
}
TARGETS = {"joint": 2.8, "weight-only": 2.1, "edge-only": 2.1, "joint memory": 1.6}
"""Ratios to the fine-tuning step that the engine is to stay below."""


def random_gpt2(n_layers: int) -> GPT2LMHeadModel:
    """A random GPT-2 of the small model's width."""
    transformers_logging.set_verbosity_error()
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=n_layers)).eval()


def random_task(vocabulary: int, prompts: int = BATCH, length: int = TOKENS) -> Task:
    """Prompts of random tokens with two random labels each."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randint(0, vocabulary, shape, generator=generator)

    split = Split(
        prompts=("",) * prompts,
        tokens=draw(prompts, length),
        corrupted=draw(prompts, length),
        lengths=torch.full((prompts,), length),
        labels=draw(prompts, 2),
        targets=torch.zeros(prompts, dtype=torch.int64),
        groups=torch.zeros(prompts, dtype=torch.int64),
    )
    return Task("random", "random", split, split, split, ("all",), None, None, "")  # type: ignore[arg-type]


def fine_tuning_step(hf: GPT2LMHeadModel, task: Task) -> Callable[[], None]:
    """Forward, loss, backward and AdamW over all parameters."""
    optimiser = torch.optim.AdamW(hf.parameters(), lr=1e-5)
    tokens, answers = task.train.tokens, task.train.labels[:, 0]

    def step() -> None:
        logits = hf(tokens, logits_to_keep=1).logits[:, -1]
        torch.nn.functional.cross_entropy(logits, answers).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def search_step(hf: GPT2LMHeadModel, task: Task, kinds: tuple[Kind, ...]) -> Callable[[], None]:
    """One step of a search, complement included."""
    model = MaskedTransformer(Checkpoint("random", hf, None, "random", None))  # type: ignore[arg-type]
    config = SearchConfig(
        batch_size=BATCH, complement_every=1, weight_logit=2.0, edge_logit=2.0, completeness=1.0
    )
    learner = Learner(model, task, config, 0, kinds, config.steps, Sheaf.full(model))
    learner.begin()
    count = iter(range(10**9))

    def step() -> None:
        learner.step(next(count))

    return step


def steps_to_measure(n_layers: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each kind of step, one after the other, so that only one holds memory at a time."""
    task = random_task(50257)
    yield "fine-tuning", fine_tuning_step(random_gpt2(n_layers), task)
    for name, kinds in KINDS.items():
        yield name, search_step(random_gpt2(n_layers), task, kinds)


def cpu_seconds(step: Callable[[], None], rounds: int) -> float:
    """Least CPU time of a step, after two that warm up."""
    times = []
    for _ in range(rounds + 2):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return min(times[2:])


def measure_times(n_layers: int, rounds: int) -> pd.DataFrame:
    """Seconds of each step and their ratio to fine-tuning; fine-tuning is measured twice.

    Before and after the others, and the smaller counts: the ratio errs on the unkind side.
    """
    seconds = {name: cpu_seconds(step, rounds) for name, step in steps_to_measure(n_layers)}
    again = cpu_seconds(fine_tuning_step(random_gpt2(n_layers), random_task(50257)), rounds)
    seconds["fine-tuning"] = min(seconds["fine-tuning"], again)
    frame = pd.DataFrame({"step": list(seconds), "cpu_seconds": list(seconds.values())})
    frame["ratio"] = frame["cpu_seconds"] / seconds["fine-tuning"]
    frame.insert(0, "layers", n_layers)
    print(frame.round(2).to_string(index=False), flush=True)
    return frame


def measure_memory(name: str, n_layers: int) -> float:
    """Peak memory in GB of three steps in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.step", "--memory-of", name]
    command += ["--layers", str(n_layers)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])["peak_gb"]


def with_memory(frame: pd.DataFrame, memory: dict[str, float]) -> pd.DataFrame:
    """The table of times with the peak memory at 12 layers, in GB and as a ratio."""
    peak = frame["step"].map(memory).where(frame["layers"] == 12)
    return frame.assign(peak_gb=peak, memory_ratio=peak / memory["fine-tuning"])


def verdicts(frame: pd.DataFrame) -> list[str]:
    """Each target with what was measured at 12 layers."""
    rows = frame[frame["layers"] == 12].set_index("step")
    texts = []
    for name, target in TARGETS.items():
        column = "memory_ratio" if name.endswith("memory") else "ratio"
        found = float(rows[column][name.removesuffix(" memory")])
        told = "met" if found <= target else "missed"
        texts.append(f"{name}: {found:.2f}x, at most {target}x: {told}")
    return texts


def print_peak_memory(name: str, n_layers: int) -> None:
    """Take three steps of one kind and print the process's peak memory."""
    task = random_task(50257)
    hf = random_gpt2(n_layers)
    make = fine_tuning_step if name == "fine-tuning" else None
    step = make(hf, task) if make else search_step(hf, task, KINDS[name])
    del hf
    for _ in range(3):
        step()
    print(json.dumps({"peak_gb": peak_memory_mb() / 1024}))


def figure(frame: pd.DataFrame) -> Figure:
    """Ratios by depth, and memory at 12 layers; targets as dashes."""
    methods = dict(zip(KINDS, ("discogp", "weight_pruning", "edge_pruning"), strict=True))
    with house_style():
        drawn, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.4), width_ratios=[3, 2])
        for name, method in methods.items():
            rows = frame[frame["step"] == name].sort_values("layers")
            colour, marker = METHOD_COLOURS[method], METHOD_MARKERS[method]
            left.plot(rows["layers"], rows["ratio"], color=colour, marker=marker, label=name)
        left.hlines([2.1, 2.8], 10.5, 13.5, color="0.35", linestyles="dashed", label="target")
        left.set_xscale("log", base=2)
        left.set_xticks(layers := sorted(frame["layers"].unique()), [str(n) for n in layers])
        left.set(xlabel="layers", ylabel="time / fine-tuning step", ylim=(0, None))
        left.legend(ncols=2, loc="lower right")
        left.set_title("time of a step", loc="left")
        bars = frame[frame["layers"] == 12]
        colours = ["0.6", *(METHOD_COLOURS[method] for method in methods.values())]
        right.barh(bars["step"], bars["peak_gb"], color=colours, height=0.6)
        tuning = float(bars.loc[bars["step"] == "fine-tuning", "peak_gb"].iloc[0])
        right.vlines(TARGETS["joint memory"] * tuning, 0.6, 1.4, color="0.35", linestyles="dashed")
        right.invert_yaxis()
        right.set(xlabel="peak memory (GB)")
        right.set_title("memory at 12 layers", loc="left")
        label_panels((left, right))
    return drawn


@contextmanager
def one_thread() -> Iterator[None]:
    """Ratios are taken on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--layers", type=int, nargs="*", default=[12, 6, 24])
    parser.add_argument("--memory-of", choices=["fine-tuning", *KINDS])
    options = parser.parse_args()
    with one_thread():
        if options.memory_of:
            print_peak_memory(options.memory_of, options.layers[0])
            return
        times = [measure_times(n, options.rounds) for n in options.layers]
    memory = {name: measure_memory(name, 12) for name in ("fine-tuning", *KINDS)}
    frame = with_memory(pd.concat(times, ignore_index=True), memory)
    save_figure(figure(frame), frame.round(3), "benchmarks", "step", figures=RESULTS)
    print(frame.round(2).to_string(index=False))
    print(*verdicts(frame), sep="\n")


if __name__ == "__main__":
    main()
