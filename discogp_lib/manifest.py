"""What a profile's results were made of: `results/<profile>/manifest.json`."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import torch

from discogp_lib.paths import FIGURES, REPO, RESULTS, atomic_path
from discogp_lib.profiles import get_profile
from discogp_lib.runs import Record, Run, file_sha256, git_revision, load_record


def write_manifest(profile: str, runs: Sequence[Run]) -> Path:
    """Write the manifest of a profile whose tables were made from these runs."""
    path = RESULTS / profile / "manifest.json"
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(manifest(profile, runs), indent=1) + "\n")
    return path


def manifest(profile: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Code, settings, data, model, machine, and the hash of everything that came out."""
    settings = asdict(get_profile(profile))
    records = [record for run in runs if (record := load_record(run)) is not None]
    return {
        "profile": profile,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_revision(),
        "config_sha256": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        "config": settings["search"],
        "model": settings["model"],
        "checkpoint_sha256": _checkpoint(records),
        "tasks": list(dict.fromkeys(run.task for run in runs)),
        "methods": list(dict.fromkeys(run.method for run in runs)),
        "seeds": sorted({run.seed for run in runs}),
        "data_sha256": _data(records),
        "runs": len(records),
        "cpu_seconds_of_runs": round(sum(r.data["seconds"]["cpu"] for r in records)),
        "versions": versions(),
        "hardware": hardware(),
        "files_sha256": _files(profile),
    }


def _checkpoint(records: Sequence[Record]) -> list[str]:
    """Hash of the weights; several if the runs were not all made from the same."""
    plain = (r for r in records if not r.run.method.endswith("@untrained"))
    return sorted({record.data["inputs"]["checkpoint_sha256"] for record in plain})


def _data(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Hash of the prompts by task and seed."""
    hashes: dict[str, dict[str, str]] = {}
    for record in records:
        if not record.run.method.endswith("@shuffled"):
            seeds = hashes.setdefault(record.run.task, {})
            seeds[str(record.run.seed)] = record.data["inputs"]["task_sha256"]
    return hashes


def versions() -> dict[str, str]:
    """Python, and what of our dependencies is installed."""
    names = [re.split(r"[^\w.-]", line)[0] for line in requires("discogp") or []]
    found = {"python": sys.version.split()[0], "discogp": version("discogp")}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """The machine, without its name."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "gpus": gpus,
    }


def _processor() -> str:
    """The processor's name; Linux tells it only in a file."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _files(profile: str) -> dict[str, str]:
    """Hash of every table, figure and executed notebook."""
    folders = [RESULTS / profile / "tables", RESULTS / profile / "notebooks", FIGURES / profile]
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    kept = [path for path in files if not path.name.startswith(".")]
    return {str(path.relative_to(REPO)): file_sha256(path) for path in kept}
