"""One list of dependencies, repeated nowhere by hand without a check; the shapes are checked."""

import re
import subprocess
import sys
import tomllib

import pytest
import torch
import yaml
from jaxtyping import TypeCheckError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from discogp_lib.paths import REPO
from discogp_lib.tasks.base import Split

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DEPENDENCIES = PROJECT["dependencies"] + [line for extra in EXTRAS.values() for line in extra]


def locked_versions() -> dict[str, str]:
    lines = (REPO / "requirements.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def test_environment_yml_repeats_pyproject():
    content = yaml.safe_load((REPO / "environment.yml").read_text())
    (pip,) = [entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict)]
    assert pip == DEPENDENCIES


def test_environment_yml_asks_for_a_python_that_pyproject_admits():
    content = yaml.safe_load((REPO / "environment.yml").read_text())
    (python,) = [entry for entry in content["dependencies"] if str(entry).startswith("python")]
    assert PROJECT["requires-python"] in python


@pytest.mark.parametrize("line", DEPENDENCIES)
def test_lock_has_a_version_inside_the_bounds(line: str):
    requirement = Requirement(line)
    version = locked_versions().get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not in requirements.lock"
    assert requirement.specifier.contains(version, prereleases=True)


def test_lock_fits_every_platform():
    lines = (REPO / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    odd = [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)]
    assert not odd, "only name==version, without local labels, paths or addresses"
    assert "discogp" not in locked_versions()


def test_torch_is_pinned_exactly():
    assert "torch==2.13.0" in PROJECT["dependencies"]


def test_no_index_is_named():
    for name in ("pyproject.toml", "environment.yml", "requirements.lock", "Makefile"):
        assert "index-url" not in (REPO / name).read_text(), name


def test_tests_stay_off_the_network_and_on_one_thread():
    code = (
        "import torch; from huggingface_hub.constants import HF_HUB_OFFLINE;"
        "print(HF_HUB_OFFLINE, torch.get_num_threads())"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["True", "1"]
    assert torch.get_num_threads() == 1


def test_shapes_of_the_library_are_checked():
    """The import hook of conftest is at work, on dataclasses too."""
    numbers = torch.zeros(2, dtype=torch.int64)
    table = torch.zeros(2, 3, dtype=torch.int64)
    fields = {"lengths": numbers, "labels": table, "targets": numbers, "groups": numbers}
    assert len(Split(("a", "b"), table, table, **fields)) == 2
    with pytest.raises(TypeCheckError):
        Split(("a", "b"), table, table, **(fields | {"targets": torch.zeros(3).long()}))
