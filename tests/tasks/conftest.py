"""Stand-ins for a model: small tokenizers, and one that knows every answer."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from discogp_lib.tasks.base import Split
from discogp_lib.tasks.ioi import OBJECTS, PAPER_NAMES, PLACES, TEMPLATES

NO_DATA = "DISCOGP_DATA is not set"


def small_model(name: str, tokenizer: PreTrainedTokenizerFast, bos: int | None) -> SimpleNamespace:
    """All that a task asks of a model, but for its answers."""
    return SimpleNamespace(
        name=name,
        tokenizer=tokenizer,
        bos=bos,
        device=torch.device("cpu"),
        n_weights=0,
        checkpoint_sha256=name,
        most_tokens=tokenizer.model_max_length,
    )


@pytest.fixture(scope="session")
def toy_model() -> SimpleNamespace:
    """A byte-level BPE like GPT-2's, trained on IOI's words, so that its names are one token."""
    words = [f"the {word} and {word}." for word in (*PAPER_NAMES, *PLACES, *OBJECTS)]
    agreement = [
        "this",
        "that",
        "these",
        "those",
        "herself",
        "himself",
        "itself",
        "themselves",
        "cat",
        "cats",
        "dog",
        "dogs",
    ]
    texts = [*TEMPLATES, *words, *(f"see {word} see {word}" for word in agreement)]
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts * 3, vocab_size=1500, min_frequency=2, show_progress=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer)
    return small_model("toy", tokenizer, None)


@pytest.fixture(scope="session")
def word_model() -> SimpleNamespace:
    """A tokenizer with one token per known word and one for all the others, and a BOS."""
    words = [
        "[UNK]",
        "[BOS]",
        "the",
        "cat",
        "cats",
        "dog",
        "dogs",
        "sees",
        "this",
        "these",
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
        "h",
        "i",
        "j",
        "k",
        "l",
        "m",
        "n",
    ]
    model = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    model.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="[UNK]", model_max_length=20
    )
    return small_model("words", tokenizer, 1)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data."""
    folder = os.environ.get("DISCOGP_DATA")
    if not folder:
        pytest.skip(NO_DATA)
    return Path(folder)


@pytest.fixture(scope="session")
def gpt2_tokens(data: Path) -> SimpleNamespace:
    """GPT-2's tokenizer without its weights."""
    files = data / "gpt2_bpe"
    bpe = ByteLevelBPETokenizer(str(files / "encoder.json"), str(files / "vocab.bpe"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer)
    return small_model("gpt2", tokenizer, None)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], bool]], None]:
    """Make every model answer a prompt correctly exactly where the given rule says so."""

    def set_rule(rule: Callable[[str], bool]) -> None:
        def label_logits(model: object, split: Split, sheaf: object = None) -> torch.Tensor:
            logits = torch.zeros(split.labels.shape)
            for i, prompt in enumerate(split.prompts):
                shift = 0 if rule(prompt) else 1
                logits[i, (split.targets[i] + shift) % logits.shape[1]] = 1
            return logits

        stand_in = ModuleType("discogp_lib.evaluate")
        stand_in.label_logits = label_logits  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "discogp_lib.evaluate", stand_in)

    return set_rule
