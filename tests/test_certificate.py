"""A certificate says what was measured, and is not given where it should not be."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from discogp_lib import certificate as module
from discogp_lib.__main__ import main
from discogp_lib.certificate import Certificate, certificates, certify, full_multiply_adds
from discogp_lib.errors import RunError
from discogp_lib.evaluate import is_right, label_logits
from discogp_lib.model import load_model
from discogp_lib.paths import PACKAGE
from discogp_lib.runs import Record, Run
from tests.reference import random_sheaf
from tests.test_standalone import own_task

HONEST = (PACKAGE / "standalone.py").read_text()


def runtime_that(does: str) -> str:
    """The runtime with a line that is executed when a sheaf is loaded."""
    marker = '    """Read a file written by `Sheaf.export`'
    assert HONEST.count(marker) == 1
    return HONEST.replace(marker, f"    {does}\n{marker}")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which the runtime is taken instead, to put another one there."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "isolated.py").write_text((PACKAGE / "isolated.py").read_text())
    monkeypatch.setattr(module, "PACKAGE", folder)
    return folder


@pytest.mark.parametrize(("architecture", "edges"), [("llama", 0.7), ("gpt2", 1.0)])
def test_certificate_says_what_was_measured(
    architecture: str, edges: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    directory = request.getfixturevalue(f"tiny_{architecture}_dir")
    model = load_model(directory)
    task, sheaf = own_task(model), random_sheaf(model, edges, 0.5)
    found = certify(sheaf, model, task, tmp_path)
    assert found.passed
    assert found.max_label_difference <= found.max_difference < 1e-5
    right = is_right(label_logits(model, task.test, sheaf), task.test.targets)
    assert found.accuracy == found.masked_accuracy == pytest.approx(float(right.float().mean()))
    assert found.prompts == len(task.test)
    assert found.file_bytes == (tmp_path / "sheaf.standalone").stat().st_size
    assert found.checkpoint_bytes == (directory / "model.safetensors").stat().st_size
    assert found.kept_weights == sheaf.pruned().kept_weights < found.n_weights
    assert 0 < found.multiply_adds <= found.full_multiply_adds
    assert found.live_nodes <= found.n_nodes == len(model.graph.nodes) - 2
    assert found.seconds_per_prompt > 0
    assert {"open model.safetensors", "safe_open model.safetensors"} < set(found.refused)
    assert {"import transformers", "import discogp_lib"} < set(found.refused)
    if edges == 1.0:
        assert found.transformers_difference is not None
        assert found.transformers_difference < 1e-5
    else:
        assert found.transformers_difference is None
    written = json.loads((tmp_path / "certificate.json").read_text())
    assert written == found.as_dict()


def test_multiply_adds_of_the_full_model_are_those_that_torch_counts(
    tiny_gpt2_dir: Path, tiny_llama_dir: Path
) -> None:
    for directory in (tiny_gpt2_dir, tiny_llama_dir):
        hf = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager")
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            hf(torch.zeros(1, 7, dtype=torch.int64))
        unembedding = 7 * hf.get_output_embeddings().weight.numel()
        counted = counter.get_total_flops() / 2 - unembedding
        layout = load_model(directory).layout
        assert counted == pytest.approx(7 * full_multiply_adds(layout, torch.tensor([7])))


CHEATS = {
    "reads the checkpoint": "open(CHECKPOINT, 'rb').read()",
    "reads it below Python": "import safetensors; safetensors.safe_open(CHECKPOINT, 'pt')",
    "reads it by another name": "open(LINK, 'rb').read()",
    "opens it for mapping": "import os; os.open(CHECKPOINT, os.O_RDONLY)",
    "uses transformers": "import transformers",
    "uses the library": "import importlib; importlib.import_module('discogp_lib.model')",
}
TRY_ALL = """
reached = []
for name, action in {cheats!r}.items():
    try:
        exec(action, dict(CHECKPOINT={checkpoint!r}, LINK={link!r}))
        reached.append(name)
    except (ImportError, PermissionError):
        pass
raise RuntimeError(f"reached: {{reached}}")
"""


def test_a_runtime_that_reaches_for_the_model_is_refused(
    package: Path, tiny_gpt2_dir: Path, tmp_path: Path
) -> None:
    checkpoint, link = str(tiny_gpt2_dir / "model.safetensors"), str(tmp_path / "innocent")
    os.link(checkpoint, link)
    code = TRY_ALL.format(cheats=CHEATS, checkpoint=checkpoint, link=link)
    (package / "standalone.py").write_text(runtime_that(f"exec({code!r})"))
    model = load_model(tiny_gpt2_dir)
    with pytest.raises(RunError, match=r"could not be run alone .*reached: \[\]"):
        certify(random_sheaf(model, 0.7, 0.5), model, own_task(model), tmp_path)
    assert not (tmp_path / "certificate.json").exists()


@pytest.mark.parametrize("removed", ["sys.addaudithook(watch)", "sys.meta_path.insert(0, Refusal)"])
def test_a_guard_that_does_not_hold_is_noticed(
    removed: str, tiny_gpt2_dir: Path, tmp_path: Path
) -> None:
    """With the guard taken out, what must be refused succeeds, and nothing is certified."""
    guard = (PACKAGE / "isolated.py").read_text()
    forbidden = (
        '("discogp_lib", "transformers", "transformer_lens", "tokenizers", "huggingface_hub")'
    )
    assert guard.count(removed) == guard.count(forbidden) == 1
    open_door = tmp_path / "isolated.py"  # forbids a module that is quick to import
    open_door.write_text(guard.replace(removed, "pass").replace(forbidden, '("wave",)'))
    arguments = [PACKAGE / "standalone.py", "x", "y", "z", tiny_gpt2_dir / "model.safetensors"]
    command = [sys.executable, "-I", str(open_door), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 1
    assert "succeeded, so nothing can be certified here" in run.stderr


def test_other_logits_do_not_pass(package: Path, tiny_gpt2_dir: Path, tmp_path: Path) -> None:
    changed = HONEST.replace('self.shape["eps"]', '2 * self.shape["eps"]')
    assert changed != HONEST
    (package / "standalone.py").write_text(changed)
    model = load_model(tiny_gpt2_dir)
    found = certify(random_sheaf(model, 0.7, 0.5), model, own_task(model), tmp_path)
    assert not found.passed
    assert not json.loads((tmp_path / "certificate.json").read_text())["passed"]


ROUND = Certificate(
    model="mini",
    checkpoint_sha256="0",
    task="ioi",
    method="discogp",
    seed=0,
    file_sha256="1",
    prompts=4,
    accuracy=1.0,
    masked_accuracy=1.0,
    rows=9,
    max_difference=1e-6,
    max_label_difference=1e-6,
    transformers_difference=None,
    file_bytes=25,
    checkpoint_bytes=100,
    multiply_adds=30.0,
    full_multiply_adds=60.0,
    kept_weights=1,
    n_weights=10,
    live_nodes=3,
    n_nodes=4,
    seconds_per_prompt=0.1,
    refused=["open model.safetensors"],
)


def test_certificates_of_a_profile_are_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("discogp_lib.runs.RESULTS", tmp_path)
    record = {"sheaf_sha256": "a", "short_name": "IOI"}
    record["metrics"] = {"test": {"full_accuracy": 0.9}}
    made: list[Run] = []
    monkeypatch.setattr(module, "certify_run", lambda run: made.append(run) or ROUND)
    monkeypatch.setattr(
        module, "load_record", lambda run: Record(run, record) if run.task == "ioi" else None
    )
    for _ in range(2):
        table = certificates("smoke", ["ioi", "pararel/P36"], 0)
        assert list(table["short_name"]) == ["IOI"]
        row = table.iloc[0]
        shares = (row["file_share"], row["multiply_adds_share"], row["weight_share"])
        assert shares == (0.25, 0.5, 0.1)
        assert row["full_accuracy"] == 0.9
        assert row["refused"] == ["open model.safetensors"]
        assert bool(row["passed"])
    assert made == [Run("smoke", "ioi", "discogp", 0)]
    record["sheaf_sha256"] = "b"
    certificates("smoke", ["ioi"], 0)
    assert len(made) == 2


@pytest.mark.parametrize(("difference", "code"), [(1e-6, 0), (1e-3, 1)])
def test_command_line(
    difference: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    asked = []

    def certify_run(run: Run, device: str) -> Certificate:
        asked.append(run)
        return replace(ROUND, max_difference=difference)

    monkeypatch.setattr(module, "certify_run", certify_run)
    command = ["certify", "--profile", "smoke", "--task", "P36", "--method", "eap", "--seed", "1"]
    assert main(command) == code
    assert asked == [Run("smoke", "pararel/P36", "eap", 1)]
    told = capsys.readouterr().out
    assert f"max_difference                 {difference}" in told
    assert "certificate.json" in told
