"""Slips in Python that a type checker would find: one sentence each, where there is none.

Everywhere else in the tests there is one, so these are made in a process of their own.
"""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json
import torch
import discogp_lib as dgp
from discogp_lib.methods.acdc import AcdcConfig
from discogp_lib.methods.controls import RandomConfig
from discogp_lib.methods.eap import EapConfig, EapIgConfig

model = dgp.load_model("mini")
task = dgp.load_task("ioi", model)
full = dgp.Sheaf.full(model)
slips = {
    "task for split": lambda: dgp.evaluate(model, full, task),
    "name for task": lambda: dgp.discover(model, "ioi"),
    "checkpoint without a name": lambda: dgp.discover(model, task, checkpoint=""),
    "prompt for prompts": lambda: model.logits(task.test.tokens[0]),
    "text for a number": lambda: AcdcConfig(prompts="16"),
    "text for a threshold": lambda: AcdcConfig(threshold="small"),
    "part of a prompt": lambda: EapConfig(prompts=2.5),
    "part of a step": lambda: EapIgConfig(steps=2.5),
    "no number": lambda: EapConfig(edge_density=float("nan")),
    "text for a share": lambda: RandomConfig(edge_density="x"),
    "no such ablation": lambda: EapConfig(ablation="none"),
}
told = {}
for name, slip in slips.items():
    try:
        slip()
    except dgp.DiscoGPError as error:
        told[name] = str(error)
print(json.dumps(told))
"""

SAID = {
    "task for split": "on a split, such as task.test, not on a Task.",
    "name for task": "such as load_task('ioi', model), not a str.",
    "checkpoint without a name": "A checkpoint is a file; '' names none.",
    "prompt for prompts": "a single prompt is tokens[None].",
    "text for a number": "prompts must be a whole number from 1, not '16'.",
    "text for a threshold": "threshold must be a number above 0, not 'small'.",
    "part of a prompt": "prompts must be a whole number from 1, not 2.5.",
    "part of a step": "steps must be a whole number from 1, not 2.5.",
    "no number": "edge_density is a share, 0 to 1, not nan.",
    "text for a share": "edge_density is a share, 0 to 1, not 'x'.",
    "no such ablation": "ablation is 'zero', 'mean' or 'interchange', not 'none'.",
}


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("slip", SAID)
def test_a_slip_is_one_sentence(slip: str, told: dict[str, str]):
    assert told[slip].endswith(SAID[slip])
