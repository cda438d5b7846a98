"""Circuits survive the way to the MIB track's JSON and back; what does not fit is named."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib.errors import SheafError
from discogp_lib.exchange import outer_names, read_circuit, write_circuit
from discogp_lib.graph import Graph
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from tests.reference import masked, random_gpt2, random_llama, random_sheaf

GPT2, LLAMA = masked(random_gpt2()), masked(random_llama())
MODELS = pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])


def edges_only(model: MaskedTransformer, density: float = 0.4, seed: int = 0) -> Sheaf:
    return random_sheaf(model, density, 1.0, seed)


def changed(path: Path, change: Any) -> Path:
    """The file with its contents changed."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


@MODELS
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_round_trip_of_edges(model: MaskedTransformer, density: float, tmp_path: Path) -> None:
    sheaf = edges_only(model, density)
    circuit = read_circuit(write_circuit(sheaf, tmp_path / "c.json"), model)
    assert circuit.sheaf == sheaf
    assert torch.equal(circuit.scores, sheaf.edge_mask.float())
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]  # no weights cut, no file for them


def test_a_circuit_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    path = write_circuit(edges_only(GPT2), tmp_path / "c.json")
    with pytest.raises(SheafError, match="of another checkpoint than"):
        read_circuit(path, masked(random_gpt2(seed=1), sha256="1" * 64))


def test_the_weights_do_not_overwrite_the_circuit(tmp_path: Path) -> None:
    with pytest.raises(SheafError, match=r"ends in \.json"):
        write_circuit(edges_only(GPT2), tmp_path / "c.sheaf")


@MODELS
def test_round_trip_with_weights_and_scores(model: MaskedTransformer, tmp_path: Path) -> None:
    sheaf = random_sheaf(model, 0.4, 0.3)
    scores = torch.randn(model.graph.n_edges).sigmoid()
    path = write_circuit(sheaf, tmp_path / "c.json", scores=scores)
    circuit = read_circuit(path, model)
    assert circuit.sheaf == sheaf
    assert torch.equal(circuit.scores, scores)
    pointer = json.loads(path.read_text())["discogp"]["weights"]
    assert pointer["file"] == "c.sheaf"
    assert Sheaf.load(tmp_path / pointer["file"]) == sheaf


def test_form_is_that_of_the_track(tmp_path: Path) -> None:
    """GPT-2 small's 158 nodes and 32,491 edges, each with a score and whether it is kept."""
    layout = dataclasses.replace(
        GPT2.layout, n_layers=12, n_heads=12, n_kv_heads=12, d_model=12, d_head=1
    )
    weights = {n: torch.ones(s, dtype=torch.bool) for n, s in layout.weight_shapes.items()}
    mask = torch.zeros(layout.graph.n_edges, dtype=torch.bool)
    mask[layout.graph.edge_index["a0.h1->a5.h2<q>"]] = True
    mask[layout.graph.edge_index["m3->logits"]] = True
    sheaf = Sheaf(layout, "gpt2", "0" * 64, mask, weights)
    data = json.loads(write_circuit(sheaf, tmp_path / "c.json").read_text())
    assert data["cfg"] == {"n_layers": 12, "n_heads": 12, "parallel_attn_mlp": False, "d_model": 12}
    assert len(data["nodes"]) == 158
    assert len(data["edges"]) == 32_491
    kept = {
        name for name, edge in data["edges"].items() if edge == {"score": 1.0, "in_graph": True}
    }
    assert kept == {"a0.h1->a5.h2<q>", "m3->logits"}
    assert data["edges"]["input->m0"] == {"score": 0.0, "in_graph": False}
    nodes = {name for name, node in data["nodes"].items() if node["in_graph"]}
    assert nodes == {"a0.h1", "m3", "logits"}


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_every_edge_has_names_of_its_own(layers: int, groups: int, size: int) -> None:
    """The names are those of a model in which every head had its own keys and values."""
    graph = Graph(layers, groups * size, groups)
    names = [name for group in outer_names(graph) for name in group]
    assert len(set(names)) == len(names)
    assert set(names) == set(Graph(layers, groups * size, groups * size).edges)


def test_shared_inputs_are_written_for_every_head_of_the_group(tmp_path: Path) -> None:
    sheaf = edges_only(LLAMA, 0.0)
    mask = sheaf.edge_mask.clone()
    mask[LLAMA.graph.edge_index["m0->a1.kv1<k>"]] = True
    path = write_circuit(dataclasses.replace(sheaf, edge_mask=mask), tmp_path / "c.json")
    edges = json.loads(path.read_text())["edges"]
    assert {n for n, e in edges.items() if e["in_graph"]} == {"m0->a1.h2<k>", "m0->a1.h3<k>"}
    edges["m0->a1.h3<k>"]["in_graph"] = False
    changed(path, lambda data: data.update(edges=edges))
    with pytest.raises(SheafError, match=r"kept apart: m0->a1.h2<k>, m0->a1.h3<k>"):
        read_circuit(path, LLAMA)


@MODELS
def test_unknown_and_missing_edges_are_named(model: MaskedTransformer, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_circuit(edges_only(model), path)
    edge = {"score": 1.0, "in_graph": True}
    changed(path, lambda data: data["edges"].update({"m0->a0.h0<q>": edge, "x->y": edge}))
    with pytest.raises(SheafError, match=r"does not have: m0->a0.h0<q>, x->y\."):
        read_circuit(path, model)
    write_circuit(edges_only(model), path)
    changed(path, lambda data: [data["edges"].pop(n) for n in ("m0->logits", "input->a0.h0<k>")])
    with pytest.raises(SheafError, match=r"it lacks: input->a0.h0<k>, m0->logits\."):
        read_circuit(path, model)
    write_circuit(edges_only(model), path)
    changed(path, lambda data: data.update(edges={}))
    with pytest.raises(SheafError, match=r"lacks: .* and \d+ more"):
        read_circuit(path, model)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"in_graph": 1, "score": 1.0},
        {"in_graph": True},
        {"in_graph": True, "score": "1"},
        {"in_graph": True, "score": float("nan")},
        {"in_graph": True, "score": 1e300},
        {"in_graph": True, "score": 10**400},
    ],
)
def test_unclear_entries_are_named(entry: Any, tmp_path: Path) -> None:
    path = write_circuit(edges_only(GPT2), tmp_path / "c.json")
    changed(path, lambda data: data["edges"].update({"m0->logits": entry}))
    with pytest.raises(SheafError, match=r"without a finite score .*: m0->logits"):
        read_circuit(path, GPT2)


def test_other_tools_files_need_no_key_of_ours(tmp_path: Path) -> None:
    sheaf = edges_only(GPT2)
    path = changed(write_circuit(sheaf, tmp_path / "c.json"), lambda data: data.pop("discogp"))
    assert read_circuit(path, GPT2).sheaf == sheaf


def test_weights_must_be_those_it_was_written_with(tmp_path: Path) -> None:
    path = write_circuit(random_sheaf(GPT2, 0.4, 0.3), tmp_path / "c.json")
    random_sheaf(GPT2, 0.4, 0.3, seed=1).save(tmp_path / "c.sheaf")
    with pytest.raises(SheafError, match="not the file that"):
        read_circuit(path, GPT2)
    other = masked(random_gpt2(seed=1), sha256="1" * 64)
    write_circuit(random_sheaf(GPT2, 0.4, 0.3), path)
    changed(path, lambda data: data["discogp"].update(checkpoint_sha256=other.checkpoint_sha256))
    with pytest.raises(SheafError, match="belongs to the model"):
        read_circuit(path, other)
    write_circuit(random_sheaf(GPT2, 0.4, 0.3), path)
    (tmp_path / "c.sheaf").unlink()
    with pytest.raises(SheafError, match="no sheaf file"):
        read_circuit(path, GPT2)
    for name in ("../c.sheaf", None, 3):
        changed(path, lambda data, name=name: data["discogp"]["weights"].update(file=name))
        with pytest.raises(SheafError, match="does not name a file beside it"):
            read_circuit(path, GPT2)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"edges": []}', '"x"', "[" * 100_000])
def test_files_of_another_kind_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(SheafError, match=r"c\.json is not"):
        read_circuit(path, GPT2)
    with pytest.raises(SheafError, match="cannot be read"):
        read_circuit(tmp_path / "nothing.json", GPT2)


def test_scores_must_fit(tmp_path: Path) -> None:
    sheaf = edges_only(GPT2)
    bad = sheaf.edge_mask.float()
    bad[3] = float("nan")
    for scores in (torch.ones(3), bad):
        with pytest.raises(SheafError, match="finite numbers, one for each edge"):
            write_circuit(sheaf, tmp_path / "c.json", scores=scores)
