"""The runtime computes what the masked model computes, and refuses every file that is not whole."""

import ast
import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as parse
from safetensors.torch import save
from torch.utils.flop_counter import FlopCounterMode

from discogp_lib import standalone
from discogp_lib.checkpoints import Checkpoint
from discogp_lib.isolated import multiply_adds
from discogp_lib.model import MaskedTransformer, load_model
from discogp_lib.sheaf import Sheaf
from discogp_lib.standalone import UNSIGNED, StandaloneError, load
from discogp_lib.tasks.base import Task
from tests.conftest import WORDS, tiny_tokenizer
from tests.reference import kept_edges, random_gpt2, random_llama, random_sheaf, slow_logits

SOURCE = Path(standalone.__file__)
MUTATIONS = 1500


def own_task(model: MaskedTransformer) -> Task:
    """Who is meant, in prompts of three lengths made of the tiny tokenizer's words."""
    names, ends = WORDS[6:10], ("", " the", " the a")
    prompts = [f"{a} gave {b}{end}" for a in names for b in WORDS[:6] for end in ends]
    words = [" himself", " herself"]
    targets = [words[i % 2] for i in range(len(prompts))]
    foils = [words[1 - i % 2] for i in range(len(prompts))]
    return Task.from_pairs("own", prompts, targets, foils, model)


def speaking(hf: Any) -> MaskedTransformer:
    """The library's model of a Hugging Face model, with the tiny tokenizer."""
    return MaskedTransformer(Checkpoint("random", hf, tiny_tokenizer(), "0" * 64, 0))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file that is whole."""
    model = speaking(random_llama(layers=1, heads=2, kv_heads=1))
    path = tmp_path_factory.mktemp("exported") / "tiny.standalone"
    return random_sheaf(model, 0.9, 0.5).export(path, model, task=own_task(model))


# -- what it computes -----------------------------------------------------------------------------


@pytest.mark.parametrize(("edges", "weights"), [(1.0, 1.0), (0.6, 0.6), (0.3, 0.9), (0.9, 0.1)])
@pytest.mark.parametrize(
    "hf",
    [
        random_gpt2(),
        random_llama(),
        random_llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        random_llama(heads=2, kv_heads=2, d_head=6),
    ],
    ids=["gpt2", "llama", "llama with biases", "llama without groups"],
)
def test_logits_of_the_definition(hf: Any, edges: float, weights: float, tmp_path: Path) -> None:
    """Against the slow transformer, written from the definition of edges alone."""
    model = speaking(hf)
    task = own_task(model)
    sheaf = random_sheaf(model, edges, weights, seed=1)
    alone = load(sheaf.export(tmp_path / "s", model, task=task))
    masked = {name: w * sheaf.weight_masks[name] for name, w in model.weights.items()}
    kept = kept_edges(model, sheaf.edge_mask)
    for row in range(3):
        tokens = task.test.tokens[row, : task.test.lengths[row]]
        wanted = slow_logits(hf, tokens[None], kept, masked)[0, -1, list(alone.rows)].float()
        found = alone.logits(alone.encode(task.test.prompts[row]))
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-5)


def test_dead_nodes_are_neither_held_nor_computed(tmp_path: Path) -> None:
    model = speaking(random_gpt2())
    full = Sheaf.full(model)
    mask = torch.zeros_like(full.edge_mask)
    path = ["input->a0.h1<v>", "a0.h1->m1", "m1->logits"]
    for name in [*path, "input->m0", "m0->a1.h0<q>"]:  # the last two lead nowhere
        mask[model.graph.edge_index[name]] = True
    sheaf = Sheaf(full.layout, full.model_name, full.checkpoint_sha256, mask, full.weight_masks)
    alone = load(sheaf.export(tmp_path / "s", model, task=own_task(model)))
    assert set(alone.nodes) == {"a0.h1", "a0.kv1", "m1"}
    assert sorted(f"{s}->{r}" for r, senders in alone.edges.items() for s in senders) == sorted(
        name.replace("h1<v>", "kv1<v>") for name in path
    )


@pytest.mark.parametrize("hf", [random_gpt2(), random_llama()], ids=["gpt2", "llama"])
def test_multiply_adds_are_those_that_torch_counts(hf: Any, tmp_path: Path) -> None:
    model = speaking(hf)
    alone = load(random_sheaf(model, 0.7, 0.3).export(tmp_path / "s", model, task=own_task(model)))
    tokens = [0, 2, 8, 12]
    with FlopCounterMode(display=False) as counter:
        alone.logits(tokens)
    unembedding = alone.tensors["embedding"].numel()
    assert counter.get_total_flops() == 2 * (multiply_adds(alone, len(tokens)) + unembedding)


# -- how it answers -------------------------------------------------------------------------------


def test_answers_are_the_labels_with_their_probabilities(exported: Path) -> None:
    alone = load(exported)
    answer = alone.answer("John gave the")
    logits = alone.logits(alone.encode("John gave the"))
    ids = {word: 2 + WORDS.index(word) for word in ("himself", "herself")}
    odds = torch.stack([logits[alone.rows[token]] for token in ids.values()]).softmax(0)
    assert dict(answer) == pytest.approx(dict(zip(ids, odds.tolist(), strict=True)))
    assert answer[0][1] >= answer[1][1]


def test_unknown_words_are_named(exported: Path) -> None:
    with pytest.raises(StandaloneError, match=r"'own'.*does not know 'zebra', 'Zoe'"):
        load(exported).answer("John zebra the Zoe")


def test_prompts_of_impossible_length_are_refused(tmp_path: Path) -> None:
    model = speaking(random_gpt2())
    alone = load(random_sheaf(model, 0.7, 0.3).export(tmp_path / "s", model, task=own_task(model)))
    longest = len(alone.tensors["positions"])
    assert alone.logits([0] * longest).shape == (len(alone.rows),)
    for tokens in ([], [0] * (longest + 1)):
        with pytest.raises(StandaloneError, match=f"{len(tokens)} tokens; 1 to {longest}"):
            alone.logits(tokens)
    with pytest.raises(StandaloneError, match=r"no rows for the tokens \[22\]"):
        alone.logits([0, 22])


def test_command_line_needs_nothing_of_the_library(exported: Path, tmp_path: Path) -> None:
    """The file is copied away and started there, as a user would."""
    runtime = tmp_path / "runtime.py"
    runtime.write_text(SOURCE.read_text())
    watch = "import sys, runpy; sys.argv = sys.argv[1:]; sys.modules['transformers'] = None; "
    watch += "sys.modules['discogp_lib'] = None; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-I", "-c", watch, str(runtime), str(exported)]
    command += ["John gave the", "Mary gave cats"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    assert [line.count("%") for line in run.stdout.splitlines()] == [2, 2]


def test_command_line_tells_what_is_wrong(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = tmp_path / "half.standalone"
    half.write_bytes(exported.read_bytes()[:-100])
    for arguments, told in (
        ([str(half), "John gave the"], "half.standalone was altered or cut short"),
        ([str(exported), "John gave zebras"], "does not know 'zebras'"),
    ):
        assert standalone.main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert told in err


def test_imports_and_size() -> None:
    source = SOURCE.read_text()
    assert len(source.splitlines()) < 250
    roots = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            roots.add(str(node.module).partition(".")[0])
    assert roots - set(sys.stdlib_module_names) == {"torch", "safetensors"}


# -- what it refuses ------------------------------------------------------------------------------


def mutate(data: bytes, other: bytes, chance: random.Random) -> tuple[str, bytes]:
    """One way to damage a file; `other` is a whole file of the same kind."""
    kind = chance.choice(
        ["flip", "flip in header", "cut", "swap header", "bytes", "insert", "grow"]
    )
    header = 8 + int.from_bytes(data[:8], "little")
    place = chance.randrange(header if kind == "flip in header" else len(data))
    if kind.startswith("flip"):
        return kind, flip(data, place, 1 << chance.randrange(8))
    if kind == "cut":
        return kind, data[:place]
    if kind == "swap header":
        end = 8 + int.from_bytes(other[:8], "little")
        return kind, other[:end] + data[header:]
    if kind == "bytes":
        return kind, data[:place] + chance.randbytes(min(9, len(data) - place)) + data[place + 9 :]
    if kind == "insert":
        return kind, data[:place] + chance.randbytes(1 + chance.randrange(8)) + data[place:]
    return kind, data + chance.randbytes(1 + chance.randrange(64))


def flip(data: bytes, place: int, bits: int) -> bytes:
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


def test_mutated_files_are_refused(exported: Path, tmp_path: Path) -> None:
    """A thousand and more, at random places; every one is refused with a sentence of ours."""
    model = speaking(random_llama(layers=1, heads=2, kv_heads=1, seed=1))
    other = random_sheaf(model, 0.9, 0.5).export(tmp_path / "o", model, task=own_task(model))
    whole, others = exported.read_bytes(), other.read_bytes()
    chance, path = random.Random(0), tmp_path / "mutated"
    tried: dict[str, int] = {}
    while sum(tried.values()) < MUTATIONS:
        kind, data = mutate(whole, others, chance)
        if data == whole:
            continue
        path.write_bytes(data)
        tried[kind] = tried.get(kind, 0) + 1
        with pytest.raises(StandaloneError) as refusal:
            load(path)
        assert str(path) in str(refusal.value)
    assert len(tried) == 7
    assert min(tried.values()) > 100


def test_every_bit_of_the_header_counts(exported: Path, tmp_path: Path) -> None:
    """Also spaces and names: the hash is over bytes, not over what they mean."""
    whole, path = exported.read_bytes(), tmp_path / "mutated"
    for place in range(0, 8 + int.from_bytes(whole[:8], "little"), 7):
        path.write_bytes(flip(whole, place, 1 << place % 8))
        with pytest.raises(StandaloneError):
            load(path)


def resigned(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """The file with its description or tensors changed, and a hash that fits again."""
    data = path.read_bytes()
    about, tensors = dict(load(path).about), parse(data)
    about = json.loads(json.dumps(about))
    change(about, tensors)
    about["sha256"] = UNSIGNED.decode()
    changed = save(tensors, metadata={"standalone": json.dumps(about)})
    return changed.replace(UNSIGNED, hashlib.sha256(changed).hexdigest().encode(), 1)


def set_in(*path: Any, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(about: dict[str, Any], tensors: dict[str, Any]) -> None:
        place: Any = about
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


FORGED = {
    "layers": set_in("shape", "n_layers", value=10**9),
    "no layers": set_in("shape", "n_layers", value=0),
    "heads": set_in("shape", "n_heads", value=10**9),
    "no heads": set_in("shape", "n_heads", value=0),
    "groups": set_in("shape", "n_kv_heads", value=2),
    "architecture": set_in("shape", "architecture", value="gpt2"),
    "other architecture": set_in("shape", "architecture", value="mamba"),
    "activation": set_in("shape", "activation", value="softplus"),
    "eps": set_in("shape", "eps", value="tiny"),
    "scaling": set_in("shape", "rotary_scaling", value=float("inf")),
    "shape": set_in("shape", value=None),
    "words": set_in("words", value={"John": [999]}),
    "no words": set_in("words", value=["John"]),
    "labels": set_in("labels", value=[[999, "John"]]),
    "bos": set_in("bos", value=999),
    "edges": set_in("edges", "m0", value=["a0.h7"]),
    "edge from later": set_in("edges", "a0.h0<q>", value=["m0"]),
    "edges of another type": set_in("edges", value=7),
    "huge node": set_in("nodes", "m0", "w_in", value=[1 << 40, 1 << 40]),
    "negative node": set_in("nodes", "m0", "w_in", value=[-12, 20]),
    "node of another shape": set_in("nodes", "m0", "w_in", value=[20, 12]),
    "node of strings": set_in("nodes", "m0", "w_in", value=["12", "20"]),
    "unknown node": set_in("nodes", "m9", value={"w_in": [3, 3]}),
    "no nodes": set_in("nodes", value={}),
    "format": set_in("format", value="discogp-standalone/2"),
    "no values": lambda about, tensors: tensors.pop("values"),
    "few values": lambda about, tensors: tensors.update(values=tensors["values"][:-1].clone()),
    "no norms": lambda about, tensors: tensors.pop("norms"),
    "no numbers": lambda about, tensors: tensors["embedding"].fill_(float("nan")),
    "few rows": lambda about, tensors: tensors.update(embedding=tensors["embedding"][1:].clone()),
    "same tokens": lambda about, tensors: tensors["tokens"].fill_(3),
    "packed": lambda about, tensors: tensors["m0"].add_(1),
    "packed as floats": lambda about, tensors: tensors.update(m0=tensors["m0"].float()),
    "frequencies": lambda about, tensors: tensors.update(frequencies=torch.ones(7)),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_files_are_refused(
    exported: Path, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    """Contents that make no sense, under a hash that fits."""
    path = tmp_path / "forged"
    path.write_bytes(resigned(exported, change))
    with pytest.raises(StandaloneError) as refusal:
        load(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_resigned_without_a_change_is_accepted(exported: Path, tmp_path: Path) -> None:
    """Otherwise the forgeries above would prove nothing."""
    path = tmp_path / "same"
    path.write_bytes(resigned(exported, lambda about, tensors: None))
    assert load(path).answer("John gave the") == load(exported).answer("John gave the")


def test_foreign_and_missing_files_are_refused(tiny_gpt2_dir: Path, tmp_path: Path) -> None:
    sheaf = tmp_path / "plain.sheaf"
    Sheaf.full(load_model(tiny_gpt2_dir)).save(sheaf)
    for foreign in (sheaf, tiny_gpt2_dir / "model.safetensors", tiny_gpt2_dir / "config.json"):
        with pytest.raises(StandaloneError, match="is not a standalone sheaf"):
            load(foreign)
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(StandaloneError, match="cannot be read"):
            load(missing)
