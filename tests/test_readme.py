"""Every command in the README works: cheap ones are run, the others are checked for their form."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from discogp_lib import claims
from discogp_lib.__main__ import main, parser
from discogp_lib.methods.settings import base_method
from discogp_lib.paths import REPO
from discogp_lib.profiles import default_profile, get_profile
from discogp_lib.sweep import resolve_task

README = (REPO / "README.md").read_text()
FENCES = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
EXAMPLES = [text for language, text in FENCES if language == "python"]
PROGRAMS = ("make", "python", "pip", "conda", "git", "jupyter")


def commands() -> list[str]:
    """Each command once: lines of shell blocks, and code in the text that begins like one."""
    shell = [text for language, text in FENCES if language in ("sh", "bash", "console")]
    lines = "\n".join(shell).replace("\\\n", " ").splitlines()
    spans = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", PROSE)
    inline = [" ".join(s.split()) for s in spans if re.match(rf"({'|'.join(PROGRAMS)}) [\w.-]", s)]
    plain = [shlex.join(shlex.split(line, comments=True)) for line in lines]
    parts = [part.strip() for line in [*plain, *inline] for part in line.split("&&")]
    return [part for part in dict.fromkeys(parts) if part]


def of(program: str) -> list[list[str]]:
    """The words of all commands of a program, without variables set before it."""
    split = [shlex.split(command) for command in commands()]
    bare = [[w for n, w in enumerate(words) if n or "=" not in w] for words in split]
    return [words for words in bare if words and words[0] == program]


def test_nothing_in_the_readme_is_left_unchecked():
    assert {shlex.split(command)[0] for command in commands()} <= {*PROGRAMS, "cd"}
    assert ["make", "reproduce"] in of("make")
    assert ["make", "test"] in of("make")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("words", of("make"), ids=" ".join)
def test_make_knows_the_target_and_its_variables(words: list[str]):
    kept = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    concrete = [word.replace("...", "") for word in words[1:]]
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", *concrete],
        cwd=REPO,
        env=kept,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    if words[1:2] in (["help"], ["clean"]):
        subprocess.run(["make", "help"], cwd=REPO, env=kept, capture_output=True, check=True)


@pytest.mark.parametrize("words", of("python"), ids=" ".join)
def test_python_commands_can_be_called(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert words[1] == "-m", "the README calls modules"
    module, arguments = words[2], words[3:]
    assert find_spec(module) is not None
    if module != "discogp_lib" or "..." in arguments:
        return
    if "--help" in arguments:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        return
    options = parser().parse_args(arguments)
    profile = get_profile(options.profile or default_profile()[0])
    for task in [*(getattr(options, "tasks", None) or []), getattr(options, "task", None)]:
        assert task is None or resolve_task(profile, task)
    for method in getattr(options, "methods", None) or []:
        assert base_method(method)
    if arguments[0] == "report":
        assert main(arguments) == 0
        assert capsys.readouterr().out


def test_the_claims_are_those_of_the_committed_tables():
    assert claims.readme_table(("mini", "smollm2")) in README


def test_the_readme_has_an_example():
    assert EXAMPLES


def test_examples_run(tmp_path: Path):
    """One after the other, as they stand, in an empty folder."""
    text = "\n".join(EXAMPLES)
    (tmp_path / "example.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    for name in re.findall(r"\.(?:save|export)\(\"([\w.]+)\"", text):
        assert (tmp_path / name).stat().st_size > 0


def links() -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", README) + re.findall(r'src="([^"]+)"', README)
    return [link for link in dict.fromkeys(found) if "://" not in link and link[0] != "#"]


@pytest.mark.parametrize("link", links())
def test_links_lead_somewhere(link: str):
    assert (REPO / link.partition("#")[0]).exists()
