"""What is exported is what the sheaf keeps, for the prompts of its task."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from discogp_lib.checkpoints import Checkpoint
from discogp_lib.errors import SheafError
from discogp_lib.evaluate import final_states
from discogp_lib.export import export_checkpoint, known_words, transformers_logits
from discogp_lib.model import MaskedTransformer, load_model
from discogp_lib.sheaf import Sheaf
from discogp_lib.standalone import PIECES, StandaloneError, load
from discogp_lib.tasks import load_task
from tests.conftest import WORDS
from tests.reference import make_split, random_gpt2, random_llama, random_sheaf
from tests.test_standalone import own_task, speaking

MARY = "When Mary and John went to the store, John gave a drink to"


@pytest.fixture(scope="module")
def mini() -> MaskedTransformer:
    return load_model("mini")


def weights_only(model: MaskedTransformer) -> Sheaf:
    """A random sheaf that cuts weights and no edges."""
    sheaf = random_sheaf(model, 1.0, 0.5)
    assert sheaf.keeps_all_edges
    return sheaf


def test_file_holds_kept_weights_and_the_rows_of_the_task(tmp_path: Path) -> None:
    model = speaking(random_llama())
    sheaf, task = random_sheaf(model, 0.6, 0.4), own_task(model)
    alone = load(sheaf.export(tmp_path / "s", model, task=task))
    assert len(alone.tensors["values"]) == sheaf.pruned().kept_weights  # no output bias to share
    splits = (task.train, task.dev, task.test)
    tokens = {0, *torch.cat([s.labels.flatten() for s in splits]).tolist()}
    tokens |= {2 + WORDS.index(w) for s in splits for p in s.prompts for w in p.split()}
    assert set(alone.rows) == tokens
    assert len(tokens) < model.vocabulary_size
    for token, row in alone.rows.items():
        assert torch.equal(alone.tensors["embedding"][row], model.fixed.embedding[token])


def test_same_sheaf_gives_the_same_file(tmp_path: Path) -> None:
    model = speaking(random_gpt2())
    sheaf, task = random_sheaf(model, 0.6, 0.4), own_task(model)
    files = [sheaf.export(tmp_path / str(i), model, task=task).read_bytes() for i in range(3)]
    assert files[0] == files[1] == files[2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1", "2"]


def test_names_are_the_labels_where_they_stand_in_the_prompt(
    mini: MaskedTransformer, tmp_path: Path
) -> None:
    task = load_task("ioi", mini, sizes=(40, 10, 10))
    full = load(Sheaf.full(mini).export(tmp_path / "s", mini, task=task, all_rows=True))
    answer = full.answer(MARY)
    assert [word for word, _ in answer] == ["Mary", "John"]
    assert sum(share for _, share in answer) == pytest.approx(1)


def test_all_rows_know_every_word_of_one_token(mini: MaskedTransformer, tmp_path: Path) -> None:
    task = load_task("blimp/anaphor_gender_agreement", mini, sizes=(40, 10, 10))
    few, every = (
        load(Sheaf.full(mini).export(tmp_path / str(rows), mini, task=task, all_rows=rows))
        for rows in (False, True)
    )
    with pytest.raises(StandaloneError, match="store"):
        few.encode("This husband went to the store")
    wanted = mini.tokenizer("This husband went to the store")["input_ids"]
    assert every.encode("This husband went to the store") == [mini.bos, *wanted]
    assert len(every.rows) == mini.vocabulary_size
    unknown = mini.tokenizer.unk_token_id
    assert all(ids != [unknown] for ids in every.about["words"].values())


@pytest.mark.parametrize("name", ["pararel/P36", "blimp/determiner_noun_agreement_1"])
def test_every_prompt_is_read_as_the_tokenizer_reads_it(
    mini: MaskedTransformer, tmp_path: Path, name: str
) -> None:
    task = load_task(name, mini)
    alone = load(random_sheaf(mini, 0.3, 0.1).export(tmp_path / "s", mini, task=task))
    for split in (task.train, task.dev, task.test):
        for row, prompt in enumerate(split.prompts):
            assert alone.encode(prompt) == split.tokens[row, : split.lengths[row]].tolist()
    labels = {word for _, word in alone.about["labels"]}
    if task.label_words is not None:
        assert labels == set(task.label_words)
    assert not alone.about["labels_in_prompt"]


def byte_level(sentences: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2 and SmolLM2 have it: words of several tokens, spaces inside them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def test_byte_level_tokenizers_are_read_word_by_word() -> None:
    starts = ["Zoë didn't see", "The U.S. envoy, 42, saw", "Who's she?! We saw", "A  gap: he saw"]
    prompts = [f"{start} {who}" for start in starts for who in ("them", "Ann-Marie", "a naïve boy")]
    tokenizer = byte_level(prompts)
    model = MaskedTransformer(Checkpoint("random", random_gpt2(), tokenizer, "0" * 64, None))
    nothing = torch.zeros(len(prompts), 2, dtype=torch.int64)
    split = make_split(nothing, nothing, nothing[:, 0])
    words = known_words(model, [dataclasses.replace(split, prompts=tuple(prompts))])
    for prompt in prompts:
        read = [token for piece in PIECES.findall(prompt) for token in words[piece]]
        assert read == tokenizer(prompt)["input_ids"]
    assert max(map(len, words.values())) > 1


def test_task_comes_from_the_sheaf(mini: MaskedTransformer, tmp_path: Path) -> None:
    sheaf = random_sheaf(mini, 0.3, 0.1)
    with pytest.raises(SheafError, match="which task"):
        sheaf.export(tmp_path / "s", mini)
    name = "pararel/P36"
    found = dataclasses.replace(sheaf, metadata={"task": name, "seed": 3})
    assert load(found.export(tmp_path / "s", mini)).about["task"] == name
    sha256 = load_task(name, mini, seed=3).sha256
    assert load(tmp_path / "s").about["task_sha256"] == sha256
    other = dataclasses.replace(sheaf, metadata={"task": name, "seed": 3, "task_sha256": "0"})
    with pytest.raises(SheafError, match="other prompts of 'pararel/P36'"):
        other.export(tmp_path / "t", mini)
    assert not (tmp_path / "t").exists()


def test_sheaves_that_need_the_model_are_refused(tmp_path: Path) -> None:
    model = speaking(random_gpt2())
    sheaf = random_sheaf(model, 0.3, 0.1)
    mean = dataclasses.replace(sheaf, metadata={"config": {"ablation": "mean"}})
    with pytest.raises(SheafError, match="under mean ablation"):
        mean.export(tmp_path / "s", model, task=own_task(model))
    other = dataclasses.replace(sheaf, checkpoint_sha256="1" * 64)
    with pytest.raises(SheafError, match="belongs to the model"):
        other.export(tmp_path / "s", model, task=own_task(model))


# -- weights only ---------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_weights_alone_are_an_ordinary_checkpoint(
    architecture: str, request: Any, tmp_path: Path
) -> None:
    model = load_model(request.getfixturevalue(f"tiny_{architecture}_dir"))
    sheaf, task = weights_only(model), own_task(model)
    directory = export_checkpoint(sheaf, tmp_path / "zeros", model)
    plain = transformers_logits(directory, task.test)
    masked = final_states(model, task.test, sheaf) @ model.fixed.unembedding.T
    torch.testing.assert_close(plain, masked, atol=1e-5, rtol=0)
    full = final_states(model, task.test) @ model.fixed.unembedding.T
    assert float((plain - full).abs().max()) > 1e-3
    again = load_model(directory)
    for name, weight in again.weights.items():
        assert torch.equal(weight != 0, sheaf.weight_masks[name] & (model.weights[name] != 0))
    assert [p.name for p in tmp_path.iterdir()] == ["zeros"]


def test_cut_edges_are_no_ordinary_checkpoint(tiny_gpt2_dir: Path, tmp_path: Path) -> None:
    model = load_model(tiny_gpt2_dir)
    with pytest.raises(SheafError, match=r"cuts \d+ edges"):
        export_checkpoint(random_sheaf(model, 0.9, 1.0), tmp_path / "zeros", model)
    with pytest.raises(SheafError, match="exists already"):
        export_checkpoint(weights_only(model), tmp_path, model)
