"""What EAP and ACDC cost on a model of GPT-2 small's shape, with random weights, on one core.

EAP scores every edge with one forward and one backward pass over the unrolled graph, after one
plain forward for the full model's answers. Passes are counted; CPU seconds and the peak memory of a
fresh process are measured.

ACDC evaluates about one mask per edge. The seconds of a mask are measured on a sample of places
(some layers, each kind of receiver, nothing cut yet, which is the dearest), interpolated over the
layers and multiplied by the number of edges. How many masks an edge takes is measured by one run on
the mini model: fewer than one, since edges that lead nowhere any more are cut unseen.

    python -m benchmarks.methods              the table in results/benchmarks/methods.csv
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import torch

from benchmarks.step import BATCH, TOKENS, one_thread, random_gpt2, random_task
from discogp_lib.checkpoints import Checkpoint
from discogp_lib.methods.acdc import FIRST_THRESHOLD, AcdcConfig, AcdcSearch
from discogp_lib.methods.eap import EapConfig, eap_scores
from discogp_lib.methods.measured_kl import MeasuredKL
from discogp_lib.methods.suffix import blocks
from discogp_lib.model import MaskedTransformer, load_model
from discogp_lib.paths import RESULTS, atomic_path
from discogp_lib.runs import peak_memory_mb
from discogp_lib.tasks import load_task

LAYERS = 12
SAMPLED_LAYERS = (0, 4, 8, 11)
CHAIN = 2
"""Masks evaluated at once; more do not make a mask cheaper on one core."""
MINI_TASK = "blimp/determiner_noun_agreement_1"


def gpt2_shape(n_layers: int = LAYERS) -> MaskedTransformer:
    """A random model of GPT-2 small's shape."""
    hf = random_gpt2(n_layers)
    return MaskedTransformer(Checkpoint("random", hf, None, "random", None))  # type: ignore[arg-type]


def timed(work: Callable[[], object], rounds: int) -> float:
    """Least CPU seconds of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def count_passes(model: MaskedTransformer, work: Callable[[], object]) -> int:
    """How often the model's layers are run."""
    count, run = 0, model.run

    def counted(*arguments: object, **options: object) -> object:
        nonlocal count
        count += 1
        return run(*arguments, **options)  # type: ignore[arg-type]

    model.run = counted  # type: ignore[method-assign, assignment]
    try:
        work()
    finally:
        model.run = run  # type: ignore[method-assign]
    return count


def measure_eap(rounds: int) -> dict[str, float]:
    """Seconds, passes and memory of one EAP over one batch of prompts, in this process."""
    model = gpt2_shape()
    task = random_task(50257)
    loaded = peak_memory_mb() / 1024

    def work() -> object:
        return eap_scores(model, task, EapConfig(prompts=BATCH))

    seconds = timed(work, rounds)
    memory = peak_memory_mb() / 1024
    return {
        "forward passes": count_passes(model, work),
        "backward passes": 1,
        "cpu seconds": seconds,
        "edges scored": model.graph.n_edges,
        "peak memory (GB)": memory,
        "of it the loaded model (GB)": loaded,
    }


def seconds_per_mask(kls: MeasuredKL) -> pd.DataFrame:
    """CPU seconds of one mask for each sampled place of the graph."""
    graph, rows = kls.model.graph, []
    mask = torch.ones(graph.n_edges, dtype=torch.bool)
    masks = mask.repeat(CHAIN, 1)
    for number, block in enumerate(blocks(graph)):
        if block.kind != "logits" and block.layer not in SAMPLED_LAYERS:
            continue
        upstream = kls.upstream(block, mask, kls.outputs)
        for i in range(CHAIN):
            masks[:, block.start + i] = False
        found = timed(partial(kls.evaluate, upstream, masks), 2) / CHAIN
        masks[:] = True
        part = (number - 1) % 4  # the logits, then MLP, values, keys and queries of each layer
        place = "logits" if block.kind == "logits" else str(part)
        rows.append({"place": place, "layer": block.layer, "seconds": found})
    return pd.DataFrame(rows)


def estimate_acdc() -> dict[str, float]:
    """Masks and hours of one ACDC run at one threshold."""
    model = gpt2_shape()
    search = AcdcSearch(model, random_task(50257), AcdcConfig())
    sample, total = seconds_per_mask(search.kls), 0.0
    for number, block in enumerate(blocks(model.graph)):
        n_edges = len(block.receivers) * block.n_senders
        place = "logits" if block.kind == "logits" else str((number - 1) % 4)
        known = sample[sample["place"] == place].sort_values("layer")
        total += n_edges * float(np.interp(block.layer, known["layer"], known["seconds"]))
    mini = load_model("mini")
    small = AcdcSearch(mini, load_task(MINI_TASK, mini), AcdcConfig())
    start = time.process_time()
    small.run(FIRST_THRESHOLD)
    masks_per_edge = small.kls.evaluated / mini.graph.n_edges
    return {
        "edges to judge": model.graph.n_edges,
        "masks per edge (mini model)": masks_per_edge,
        "forwards estimated": masks_per_edge * model.graph.n_edges,
        "places sampled": len(sample),
        "seconds per mask, least": sample["seconds"].min(),
        "seconds per mask, largest": sample["seconds"].max(),
        "hours per threshold, estimated": masks_per_edge * total / 3600,
        "hours per threshold, one mask per edge": total / 3600,
        "mini model, one threshold (cpu seconds)": time.process_time() - start,
    }


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-eap", action="store_true", help="print EAP's numbers as JSON")
    options = parser.parse_args()
    with one_thread():
        if options.only_eap:
            print(json.dumps(measure_eap(options.rounds)))
            return
        command = [sys.executable, "-m", "benchmarks.methods", "--only-eap"]
        command += ["--rounds", str(options.rounds)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        eap = json.loads(found.stdout.splitlines()[-1])
        acdc = estimate_acdc()
    setting = f"GPT-2 small's shape, random weights, {BATCH} prompts of {TOKENS} tokens, one core"
    frame = pd.DataFrame(
        [(setting, "EAP", name, value) for name, value in eap.items()]
        + [(setting, "ACDC", name, value) for name, value in acdc.items()],
        columns=["setting", "method", "quantity", "value"],
    )
    with atomic_path(RESULTS / "benchmarks" / "methods.csv") as path:
        frame.to_csv(path, index=False, float_format="%.4g", lineterminator="\n")
    print(frame.drop(columns="setting").round(3).to_string(index=False))


if __name__ == "__main__":
    main()
