"""A copy of the library in a folder of its own, with the quick profile added to it.

Worker processes and SLURM jobs import the library anew, so nothing can be patched in them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from discogp_lib.paths import PACKAGE

PROFILE = """

PROFILES["quick"] = Profile(
    name="quick",
    model="mini",
    tasks=("pararel/P36", "pararel/P103"),
    methods=("magnitude", "discogp"),
    seeds=(0, 1),
    search=SearchConfig(
        steps=4, evaluate_every=2, batch_size=4, dev_prompts=8, weight_logit=1.0, edge_logit=1.0
    ),
    variant_tasks=(),
    about="a test",
)
PROFILES["slow"] = Profile(
    name="slow",
    model="mini",
    tasks=("pararel/P36", "pararel/P103"),
    methods=("discogp",),
    seeds=(0,),
    search=SearchConfig(
        steps=100_000, evaluate_every=50_000, patience=1_000, checkpoint_every=10, dev_prompts=8
    ),
    variant_tasks=(),
    about="a test that is killed",
)
"""


class Checkout:
    """A project folder whose commands can be run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        package = root / PACKAGE.name
        skipped = shutil.ignore_patterns("__pycache__", "mini_model")
        shutil.copytree(PACKAGE, package, ignore=skipped)
        (package / "mini_model").symlink_to(PACKAGE / "mini_model")
        for name, line in {"profiles.py": PROFILE, "masks.py": "\nCOMPILE_FROM = 10**12\n"}.items():
            with (package / name).open("a") as file:
                file.write(line)
        self.environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, as a terminal would."""
        return subprocess.Popen(
            [sys.executable, "-m", "discogp_lib", *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end: its exit code and all that it said."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=600)
        return process.returncode, said
