"""Whether a directory is a language model we can read, and reading it.

What a user can get wrong is caught before the weights are read, or turned into one sentence,
because transformers only warns about some of it: a directory without a tokenizer gives it an empty
vocabulary, and weights missing from a file are drawn at random.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers.utils import logging as transformers_logging

from discogp_lib.errors import CheckpointError

SUPPORTED = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}
"""The architectures whose computation graph this library knows, by `model_type`."""

_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")


def load_directory(
    directory: Path,
) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]:
    """Model and tokenizer from a Hugging Face directory, after looking at what can be wrong."""
    check_architecture(directory)
    for file in weight_files(directory):
        _check_safetensors(file)
    if not _has_tokenizer(directory):
        raise CheckpointError(
            f"{directory} has no tokenizer; save the model's own beside it with "
            "tokenizer.save_pretrained(directory)."
        )
    with quiet_transformers():
        model, report = _told_in_a_sentence(
            directory,
            transformers.AutoModelForCausalLM.from_pretrained,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
        tokenizer = _told_in_a_sentence(directory, transformers.AutoTokenizer.from_pretrained)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise CheckpointError(
            f"The weights in {directory} lack {len(missing)} of the tensors that its config.json "
            f"asks for, {missing[0]} first; get the directory again, config and weights together."
        )
    if not tokenizer.is_fast:
        raise CheckpointError(
            f"The tokenizer in {directory} has no fast version; save one there as tokenizer.json."
        )
    return model.eval(), tokenizer


def _told_in_a_sentence(directory: Path, load: Any, **options: Any) -> Any:
    """`load(directory)`, with whatever its libraries raise told as what is wrong with the files.

    Config validation, tokenizer and weight loading raise almost any type for a damaged file (the
    tokenizer library a bare Exception), so none is left out.
    """
    try:
        return load(directory, local_files_only=True, **options)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{directory} cannot be loaded ({type(error).__name__}: {reason}); check that its "
            "files belong together, or get them again."
        ) from error


def check_architecture(directory: Path) -> None:
    """Raise unless config.json describes a GPT-2 or Llama language model."""
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{directory} has no config.json, so it is not a Hugging Face model directory; "
            "it needs config.json, model.safetensors and tokenizer.json."
        ) from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise CheckpointError(f"{directory / 'config.json'} is not valid JSON; get it again.")
    model_type = str(config.get("model_type"))
    named = config.get("architectures") or [SUPPORTED.get(model_type, model_type)]
    if SUPPORTED.get(model_type) not in named:
        raise CheckpointError(
            f"{directory} holds the architecture {named[0]}, which is not "
            f"supported; use a checkpoint of {' or '.join(SUPPORTED.values())}."
        )


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory, in a fixed order; pickled weights are never read."""
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        pickled = any(directory.glob("pytorch_model*.bin"))
        raise CheckpointError(
            f"{directory} has no model.safetensors"
            + (", only pickled weights, which are never opened" if pickled else "")
            + "; save the model there with model.save_pretrained(directory)."
        ) from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise CheckpointError(f"{index} is damaged; get it again.") from None
    if any(Path(name).name != name for name in names):
        raise CheckpointError(f"{index} names files outside its own directory; do not use it.")
    return [directory / name for name in sorted(names)]


def _check_safetensors(file: Path) -> None:
    """Raise when a weight file is missing or its size is not what its own header says."""
    try:
        with safe_open(file, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        state = "is damaged or cut short" if file.is_file() else "is missing"
        raise CheckpointError(
            f"The weight file {file} {state} ({error}); get it again and put it in its place."
        ) from error


def hash_weights(directory: Path) -> str:
    """SHA-256 over the weight files one after the other."""
    digest = hashlib.sha256()
    for path in weight_files(directory):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no warnings from transformers inside the block."""
    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def is_complete(directory: Path) -> bool:
    """Whether a directory holds all that loading needs; an interrupted download does not."""
    try:
        weights = weight_files(directory)
    except CheckpointError:
        return False
    files = [directory / "config.json", *weights]
    return _has_tokenizer(directory) and all(file.is_file() for file in files)


def _has_tokenizer(directory: Path) -> bool:
    return any((directory / file).is_file() for file in _TOKENIZER_FILES)
