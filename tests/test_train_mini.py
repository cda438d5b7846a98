"""The trainer, on a shape of seconds; and the shipped weights against their card."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from discogp_lib import train_mini
from discogp_lib.errors import DiscoGPError
from discogp_lib.mini_report import Score, encode, measure, with_table
from discogp_lib.tasks import mini
from discogp_lib.train_mini import (
    MINI_MODEL,
    Recipe,
    build_tokenizer,
    main,
    train,
    train_and_write,
)

TINY = replace(Recipe(), steps=12, batch_size=12, warm_up=2, layers=1, heads=2, width=16)


def test_words_are_single_tokens_with_and_without_a_space() -> None:
    tokenizer = build_tokenizer()
    assert tokenizer(" herself")["input_ids"] == tokenizer("herself")["input_ids"]
    assert tokenizer.tokenize("Then, John can't zzz.") == [
        "Then",
        ",",
        "John",
        "can't",
        "<unk>",
        ".",
    ]
    assert tokenizer.bos_token_id == 0


def test_a_few_steps_lower_the_loss() -> None:
    _, log = train(TINY, build_tokenizer(), log_every=6)
    assert log[-1]["loss"] < log[0]["loss"]


def test_one_seed_gives_the_same_weights_twice_and_another_seed_others() -> None:
    tokenizer = build_tokenizer()
    short = replace(TINY, steps=3)
    one, two, other = (
        train(recipe, tokenizer)[0].state_dict()
        for recipe in (short, short, replace(short, seed=1))
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["transformer.wte.weight"], other["transformer.wte.weight"])


def test_a_model_below_the_bar_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(DiscoGPError, match=r"misses 98% on .*ioi.* left as it was"):
        train_and_write(replace(TINY, steps=2), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_meets_the_bar_replaces_the_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_mini, "BAR", 0.0)
    out = tmp_path / "model"
    out.mkdir()
    (out / "left over").write_text("of an older model")
    train_and_write(replace(TINY, steps=2), out)
    assert {path.name for path in out.iterdir()} == {
        *("README.md", "config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "training_log.csv"),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in out.iterdir())
    card = (out / "README.md").read_text(encoding="utf-8")
    assert main(["--report", "--out", str(out)]) == 0
    assert (out / "README.md").read_text(encoding="utf-8") == card


def test_report_of_an_empty_folder_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--report", "--out", str(tmp_path)]) == 2
    assert "There is no model in" in capsys.readouterr().err


def test_the_table_takes_the_place_of_the_old_one() -> None:
    score = Score("ioi (ABBA)", 500, 0.991, 0.5, 17.0)
    card = "a\n<!-- accuracy: start -->\nold\n<!-- accuracy: end -->\nb\n"
    new = with_table(with_table(card, [score]), [score])
    assert "old" not in new
    assert new.count("| ioi (ABBA) | 500 | 17.0 | 99.1 |") == 1
    assert new.startswith("a\n")
    assert new.endswith("\nb\n")


@pytest.fixture(scope="module")
def shipped() -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    model = GPT2LMHeadModel.from_pretrained(MINI_MODEL).eval()
    return model, PreTrainedTokenizerFast.from_pretrained(MINI_MODEL)


def test_the_shipped_tokenizer_is_the_one_the_code_builds(
    shipped: tuple[GPT2LMHeadModel, PreTrainedTokenizerFast],
) -> None:
    assert shipped[1].get_vocab() == build_tokenizer().get_vocab()
    texts = [mini.rows(name)[0].prompt for name in mini.NAMES]
    assert torch.equal(encode(shipped[1], texts)[0], encode(build_tokenizer(), texts)[0])


@pytest.mark.parametrize("name", [mini.NAMES[0], mini.NAMES[5], "ioi", "pararel/P36"])
def test_the_shipped_weights_do_what_the_card_says(
    name: str, shipped: tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]
) -> None:
    rows = mini.rows(name)
    answers = sorted({row.target for row in rows}) if rows[0].foil is None else []
    accuracy, _ = measure(*shipped, rows, answers)
    assert accuracy >= 0.98
    card = (MINI_MODEL / "README.md").read_text(encoding="utf-8")
    lines = re.findall(rf"^\| {name}[^|]*\|\s*(\d+) \|[^|]*\| ([\d.]+) \|", card, re.MULTILINE)
    stated = sum(int(n) * float(percent) for n, percent in lines) / len(rows)
    assert stated == pytest.approx(100 * accuracy, abs=0.06)
