"""Proof that a sheaf works by itself: its logits without the model, against the masked model's.

The sheaf is exported and run in a fresh process that cannot open the dense checkpoint (see
`isolated`) on every test prompt, as text. Its logits, for every token that the file has a row for,
are compared with those of the model under the sheaf's masks in this process. `certificate.json`
lies beside the exported file.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor

from discogp_lib.checkpoints import MINI, find_directory
from discogp_lib.derived import derived
from discogp_lib.errors import RunError
from discogp_lib.evaluate import final_states, is_right, share_of
from discogp_lib.export import export_checkpoint, transformers_logits
from discogp_lib.hf_directory import weight_files
from discogp_lib.layout import Layout
from discogp_lib.model import MaskedTransformer
from discogp_lib.paths import PACKAGE, atomic_path, cache_dir
from discogp_lib.profiles import get_profile
from discogp_lib.runs import Run, cached_model, cached_task, compute, file_sha256, load_record
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split, Task

TOLERANCE = 1e-4
"""Largest difference in logits that is put down to rounding."""
FILE, CERTIFICATE = "sheaf.standalone", "certificate.json"


@dataclass(frozen=True)
class Certificate:
    """What an exported sheaf did alone."""

    model: str
    checkpoint_sha256: str
    task: str
    method: str | None
    seed: int | None
    file_sha256: str
    prompts: int
    """Test prompts, all of them."""
    accuracy: float
    """Of the file alone, over each prompt's label set (a tie is wrong)."""
    masked_accuracy: float
    """Of the model under the sheaf's masks, in the ordinary way."""
    rows: int
    """Tokens that the file has rows for."""
    max_difference: float
    """Largest absolute difference of a logit, over all prompts and all rows."""
    max_label_difference: float
    """The same over the label sets alone."""
    transformers_difference: float | None
    """Where no edge is cut: of an ordinary checkpoint with zeros, loaded by transformers, over
    the whole vocabulary. None where edges are cut."""
    file_bytes: int
    checkpoint_bytes: int
    multiply_adds: float
    """Per token, made by the runtime in live heads and MLPs: weights times activations, scores and
    mixing of attention; mean over the test prompts."""
    full_multiply_adds: float
    """The same in all heads and MLPs of the model."""
    kept_weights: int
    """Weights that are not zero: what a runtime for sparse matrices would multiply."""
    n_weights: int
    live_nodes: int
    """Heads and MLPs that are computed."""
    n_nodes: int
    seconds_per_prompt: float
    """Median, one prompt at a time."""
    refused: list[str]
    """What the process tried to reach of the model and the library, in vain, before it ran."""

    @property
    def passed(self) -> bool:
        """Whether all differences are within the tolerance."""
        return max(self.max_difference, self.transformers_difference or 0.0) < TOLERANCE

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"passed": self.passed, "tolerance": TOLERANCE, **asdict(self)}


def certify_run(run: Run, *, device: str = "cpu") -> Certificate:
    """Certify the sheaf of a run in the store; the files go into its folder."""
    sheaf = compute(run, device=device, progress=False).sheaf()
    name = get_profile(run.profile).model
    task = cached_task(run.task, name, run.seed, device)
    return certify(sheaf, cached_model(name, device), task, run.folder)


def certificates(profile: str, tasks: Sequence[str], seed: int) -> pd.DataFrame:
    """One row per task whose DiscoGP sheaf is in the store: its certificate, and shares."""
    found = [certified(Run(profile, task, "discogp", seed)) for task in tasks]
    there = [table for table in found if not table.empty]
    if not there:
        return pd.DataFrame()
    table = pd.concat(there, ignore_index=True)
    return table.assign(
        file_share=table["file_bytes"] / table["checkpoint_bytes"],
        multiply_adds_share=table["multiply_adds"] / table["full_multiply_adds"],
        weight_share=table["kept_weights"] / table["n_weights"],
    )


def certified(run: Run) -> pd.DataFrame:
    """The certificate of a run as one row, none if the run is not in the store.

    It is made once for a sheaf and for this code, and then read.
    """
    record = load_record(run)
    if record is None:
        return pd.DataFrame()
    inputs = {"sheaf_sha256": record.data["sheaf_sha256"], "code": _code_sha256()}
    row = derived(run, "certified", inputs, partial(_as_row, run))
    row.insert(0, "short_name", record.data["short_name"])
    return row.assign(full_accuracy=record.test["full_accuracy"])


def _as_row(run: Run) -> pd.DataFrame:
    return pd.DataFrame([certify_run(run).as_dict()])


def _code_sha256() -> str:
    """Identity of what makes and runs an export."""
    files = ("certificate.py", "export.py", "isolated.py", "standalone.py")
    return hashlib.sha256(b"".join((PACKAGE / name).read_bytes() for name in files)).hexdigest()


def certify(sheaf: Sheaf, model: MaskedTransformer, task: Task, folder: str | Path) -> Certificate:
    """Export the sheaf into `folder`, run it alone, compare, and write certificate.json."""
    path = sheaf.export(Path(folder) / FILE, model, task=task)
    checkpoint = weight_files(checkpoint_directory(model.name))
    logits, tokens, report = _run_alone(path, task.test.prompts, checkpoint)
    masked = final_states(model, task.test, sheaf) @ model.fixed.unembedding[tokens].T
    row_of = {token: row for row, token in enumerate(tokens.tolist())}
    columns = task.test.labels.clone().apply_(row_of.__getitem__)
    alone_labels, masked_labels = (x.cpu().gather(1, columns) for x in (logits, masked))
    pruned = sheaf.pruned()
    live = model.graph.live_senders(pruned.edge_mask)[1:]
    certificate = Certificate(
        model=model.name,
        checkpoint_sha256=model.checkpoint_sha256,
        task=task.name,
        method=sheaf.metadata.get("method"),
        seed=sheaf.metadata.get("seed"),
        file_sha256=file_sha256(path),
        prompts=len(task.test),
        accuracy=share_of(is_right(alone_labels, task.test.targets)),
        masked_accuracy=share_of(is_right(masked_labels, task.test.targets)),
        rows=len(tokens),
        max_difference=float((logits - masked.cpu()).abs().max()),
        max_label_difference=float((alone_labels - masked_labels).abs().max()),
        transformers_difference=_through_transformers(sheaf, model, task.test),
        file_bytes=path.stat().st_size,
        checkpoint_bytes=sum(file.stat().st_size for file in checkpoint),
        multiply_adds=report["multiply_adds_per_token"],
        full_multiply_adds=full_multiply_adds(model.layout, task.test.lengths),
        kept_weights=pruned.kept_weights,
        n_weights=sheaf.n_weights,
        live_nodes=int(live.sum()),
        n_nodes=len(live),
        seconds_per_prompt=report["seconds_per_prompt"],
        refused=report["refused"],
    )
    with atomic_path(Path(folder) / CERTIFICATE) as temporary:
        temporary.write_text(json.dumps(certificate.as_dict(), indent=1) + "\n")
    return certificate


def _run_alone(
    path: Path, prompts: tuple[str, ...], checkpoint: list[Path]
) -> tuple[Float[Tensor, "prompt row"], Int[Tensor, " row"], dict[str, Any]]:
    """Logits after every prompt, the tokens they are for, and the report of the process."""
    with tempfile.TemporaryDirectory() as empty:
        asked, answered = Path(empty) / "prompts.json", Path(empty) / "logits.safetensors"
        asked.write_text(json.dumps(prompts), encoding="utf-8")
        files = [PACKAGE / "standalone.py", path, asked, answered, *checkpoint]
        command = [
            sys.executable,
            "-I",
            str(PACKAGE / "isolated.py"),
            *(str(f.absolute()) for f in files),
        ]
        kept = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "OMP_NUM_THREADS")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        process = subprocess.run(
            command,
            cwd=empty,
            env={**environment, "HOME": empty},
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["it gave no reason"])[-1]
            raise RunError(
                f"The exported sheaf {path} could not be run alone ({reason}); export it again, "
                "and check that this Python can import torch and safetensors with `python -I`."
            )
        found = load_file(answered)
    return found["logits"], found["tokens"], json.loads(process.stdout)


def checkpoint_directory(name: str) -> Path:
    """Where the dense model's files lie on this machine."""
    if name == "mini":
        return MINI
    if name == "smollm2-135m":
        return cache_dir() / name
    return find_directory(name)


def full_multiply_adds(layout: Layout, lengths: Int[Tensor, " prompt"]) -> float:
    """Multiply-adds per token in all heads and MLPs, mean over the tokens of the prompts."""
    per_head = 2 * layout.d_model * layout.d_head
    attention = per_head * (layout.n_heads + layout.n_kv_heads)
    mlp = (3 if layout.architecture == "llama" else 2) * layout.d_model * layout.d_mlp
    mixing = 2 * layout.n_heads * layout.d_head * int((lengths**2).sum()) / int(lengths.sum())
    return layout.n_layers * (attention + mlp + mixing)


def _through_transformers(sheaf: Sheaf, model: MaskedTransformer, split: Split) -> float | None:
    """Largest difference of any logit when a sheaf of weights is an ordinary checkpoint."""
    if not sheaf.keeps_all_edges:
        return None
    with tempfile.TemporaryDirectory() as folder:
        directory = export_checkpoint(sheaf, Path(folder) / "checkpoint", model)
        plain = transformers_logits(directory, split)
    masked = final_states(model, split, sheaf) @ model.fixed.unembedding.T
    return float((plain - masked.cpu()).abs().max())
