"""What every test shares: one thread each, no network, checked shapes, and tiny models."""

import os
import signal
import sys

# A shell starts what it puts in the background deaf to Ctrl-C, and that is inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before torch and the hub's client are imported: both read these once.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

from jaxtyping import install_import_hook

# From here on every annotated function of the library checks the shapes it is given and returns.
install_import_hook("discogp_lib", "beartype.beartype")

from pathlib import Path

import matplotlib
import pytest
import torch
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

torch.set_num_threads(1)
matplotlib.use("agg")  # here only: as a variable it would also reach the notebooks
# No deadline: the first example of a property also pays for imports and caches.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

WORDS = "the a dog dogs cat cats boy girl John Mary gave hugged himself herself this these".split()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Words at their places in `WORDS`, after `<bos>` (0) and `<unk>` (1)."""
    vocabulary = {word: token for token, word in enumerate(["<bos>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<bos>", unk_token="<unk>"
    )


def save_tiny(model: PreTrainedModel, directory: Path) -> Path:
    """Give the model random weights that do something, biases and norms too, and write it."""
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=0.1)
    model.save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def tiny_gpt2_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GPT-2 of 2 layers x 2 heads in a Hugging Face directory. Read only."""
    config = GPT2Config(
        vocab_size=32,
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return save_tiny(GPT2LMHeadModel(config), tmp_path_factory.mktemp("models") / "tiny-gpt2")


@pytest.fixture(scope="session")
def tiny_llama_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 2 layers with 4 query and 2 key-value heads. Read only."""
    config = LlamaConfig(
        vocab_size=32,
        max_position_embeddings=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=True,
    )
    return save_tiny(LlamaForCausalLM(config), tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches in tests are short: compiling would take longer than it saves."""
    monkeypatch.setattr("discogp_lib.masks.COMPILE_FROM", sys.maxsize)
