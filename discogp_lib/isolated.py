"""Run a standalone sheaf in a process that cannot open the dense checkpoint.

    python -I isolated.py standalone.py sheaf.standalone prompts.json logits.safetensors \
        checkpoint/model.safetensors ...

`certificate` starts this file by its path, in an empty folder, with `-I`: neither the current
folder nor the user's settings can bring in anything else. From its first line on

* no file of the checkpoint can be opened, under whatever name it is reached;
* transformers, its helpers and the rest of this library cannot be imported;
* safetensors cannot open any file by itself (it would do so below Python's own watch): the
  runtime has to hand it the bytes of a file that Python opened.

All of this is tried before the sheaf is run, and what was refused is reported.
"""

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

FORBIDDEN = ("discogp_lib", "transformers", "transformer_lens", "tokenizers", "huggingface_hub")


class Refusal:
    """Stands before all finders of modules and refuses the forbidden ones."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Asked first for every module that is not yet loaded."""
        if name.partition(".")[0] in FORBIDDEN:
            raise ImportError(f"{name} is forbidden here")


def forbid(checkpoint: list[Path]) -> None:
    """From now on nothing of the dense model or of the library can be reached."""
    identities = {_identity(path) for path in checkpoint}

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and _identity(arguments[0]) in identities:
            raise PermissionError(f"{arguments[0]!r} belongs to the dense checkpoint")

    def refuse(*arguments: Any, **options: Any) -> None:
        raise PermissionError(f"safetensors may not open {arguments[:1]} by itself")

    sys.addaudithook(watch)
    sys.meta_path.insert(0, Refusal)
    import safetensors
    import safetensors.torch

    for module in (safetensors, safetensors.torch):
        vars(module)["safe_open"] = refuse


def _identity(path: Any) -> tuple[int, int] | None:
    """The file itself, whatever its name; None if there is none yet."""
    try:
        found = os.stat(path)
    except (OSError, TypeError, ValueError):
        return None
    return found.st_dev, found.st_ino


def tried_in_vain(checkpoint: list[Path]) -> list[str]:
    """Everything forbidden, tried; raises if any of it succeeds."""
    import safetensors

    attempts: list[tuple[str, Callable[..., Any], Any]]
    attempts = [("import", importlib.import_module, name) for name in FORBIDDEN]
    for path in checkpoint:
        attempts += [
            ("open", open, path),
            ("safe_open", partial(safetensors.safe_open, framework="pt"), path),
        ]
    refused = [f"{verb} {getattr(what, 'name', what)}" for verb, _, what in attempts]
    for told, (_, action, what) in zip(refused, attempts, strict=True):
        try:
            action(what)
        except (ImportError, PermissionError):
            continue
        raise SystemExit(f"{told} succeeded, so nothing can be certified here")
    return refused


def load_runtime(path: Path) -> ModuleType:
    """The runtime as a module of its own, from its file alone."""
    spec = importlib.util.spec_from_file_location("standalone", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["standalone"] = module
    spec.loader.exec_module(module)
    return module


def multiply_adds(sheaf: Any, length: int) -> int:
    """Multiply-adds that the runtime makes in heads and MLPs for a prompt of so many tokens."""
    weights = sum(
        w.numel() for node in sheaf.nodes.values() for n, w in node.items() if n.startswith("w_")
    )
    heads = sum("w_q" in node for node in sheaf.nodes.values())
    return length * (weights + 2 * length * sheaf.shape["d_head"] * heads)


def main(arguments: list[str]) -> None:
    """Run all prompts, write their logits, and report on the standard output."""
    runtime, file, prompts, target, *checkpoint = map(Path, arguments)
    forbid(checkpoint)
    refused = tried_in_vain(checkpoint)

    import torch
    from safetensors.torch import save

    sheaf = load_runtime(runtime).load(file)
    logits, seconds, adds, tokens = [], [], 0, 0
    for prompt in json.loads(prompts.read_text(encoding="utf-8")):
        started = time.perf_counter()
        ids = sheaf.encode(prompt)
        logits.append(sheaf.logits(ids))
        seconds.append(time.perf_counter() - started)
        adds += multiply_adds(sheaf, len(ids))
        tokens += len(ids)
    ids = torch.tensor(list(sheaf.rows))
    target.write_bytes(save({"logits": torch.stack(logits), "tokens": ids}))
    report = {
        "refused": refused,
        "seconds_per_prompt": sorted(seconds)[len(seconds) // 2],
        "multiply_adds_per_token": adds / tokens,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1:])
