"""Circuits as others write them: the JSON of the MIB circuit track and of EAP-IG.

    {"cfg": {"n_layers", "n_heads", "parallel_attn_mlp", "d_model"},
     "nodes": {name: {"in_graph"}}, "edges": {name: {"score", "in_graph"}}}

Nodes and edges have the names of `graph`, with one difference. Where several query heads share a
key/value head, those tools see one key and one value input per *query* head; so an edge into a
shared input is written once for every head of its group, and on reading they must agree.

Weight masks have no place in the format: they lie in a sheaf file beside the JSON, and the
extra key `discogp` names it and its hash. Other readers pass over that key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from discogp_lib.errors import SheafError
from discogp_lib.graph import Graph
from discogp_lib.model import MaskedTransformer
from discogp_lib.paths import atomic_path
from discogp_lib.runs import file_sha256
from discogp_lib.sheaf import Sheaf

SHOWN = 5
"""Names given of edges that are wrong; the rest is counted."""


@dataclass(frozen=True)
class Circuit:
    """What such a file holds."""

    sheaf: Sheaf
    scores: Float[Tensor, " edge"]
    """How much each edge counts, in the order of `graph.edges`."""


def write_circuit(
    sheaf: Sheaf, path: str | Path, *, scores: Float[Tensor, " edge"] | None = None
) -> Path:
    """Write a sheaf's edges as JSON and, if it cuts weights, the sheaf itself beside them.

    scores: the method's own, one per edge: the sigmoid of a mask's logits, or attributions. By
        default 1 for a kept edge and 0 for a cut one.
    """
    path, graph = Path(path), sheaf.layout.graph
    scores = sheaf.edge_mask.float() if scores is None else scores.detach().float().cpu()
    if path.suffix == ".sheaf":
        raise SheafError(f"{path} is where the weights go; give a name that ends in .json.")
    if scores.shape != (graph.n_edges,) or not bool(scores.isfinite().all()):
        raise SheafError(f"The scores must be {graph.n_edges:,} finite numbers, one for each edge.")
    edges = {
        name: {"score": score, "in_graph": kept}
        for names, score, kept in zip(
            outer_names(graph), scores.tolist(), sheaf.edge_mask.tolist(), strict=True
        )
        for name in names
    }
    weights = None
    if not sheaf.keeps_all_weights:
        beside = path.with_suffix(".sheaf")
        sheaf.save(beside)
        weights = {"file": beside.name, "sha256": file_sha256(beside)}
    data = {
        "cfg": {
            "n_layers": graph.n_layers,
            "n_heads": graph.n_heads,
            "parallel_attn_mlp": False,
            "d_model": sheaf.layout.d_model,
        },
        "nodes": _nodes(sheaf),
        "edges": edges,
        "discogp": {
            "model": sheaf.model_name,
            "checkpoint_sha256": sheaf.checkpoint_sha256,
            "weights": weights,
        },
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(data) + "\n", encoding="utf-8")
    return path


def read_circuit(path: str | Path, model: MaskedTransformer) -> Circuit:
    """Read such a file for a model; edges that are unknown, missing or unclear are named."""
    path, groups = Path(path), outer_names(model.graph)
    data = _load(path)
    edges, known = data["edges"], {name for group in groups for name in group}
    _refuse(path, f"edges that {model.name!r} does not have", edges.keys() - known)
    _refuse(path, f"not all edges of {model.name!r}: it lacks", known - edges.keys())
    unclear = [name for name, edge in edges.items() if not _is_edge(edge)]
    _refuse(path, "edges without a finite score and a true or false in_graph", unclear)
    kept = [{edges[name]["in_graph"] for name in group} for group in groups]
    apart = [
        name
        for group, values in zip(groups, kept, strict=True)
        if len(values) > 1
        for name in group
    ]
    _refuse(path, "edges of heads that share their keys and values, but kept apart", apart)
    edge_mask = torch.tensor([values == {True} for values in kept])
    scores = [max((edges[name]["score"] for name in group), key=abs) for group in groups]
    sheaf = replace(_weights_beside(path, data, model), edge_mask=edge_mask)
    return Circuit(sheaf, torch.tensor(scores, dtype=torch.float32))


@lru_cache(maxsize=8)
def outer_names(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """The names of each edge outside this library: one, or one per head that shares the input."""
    size = graph.n_heads // graph.n_kv_heads
    if size == 1:
        return tuple((name,) for name in graph.edges)
    names: list[tuple[str, ...]] = []
    for name in graph.edges:
        start, shared, end = name.partition(".kv")
        if not shared:
            names.append((name,))
            continue
        group, _, kind = end.partition("<")
        heads = range(int(group) * size, (int(group) + 1) * size)
        names.append(tuple(f"{start}.h{head}<{kind}" for head in heads))
    return tuple(names)


def _nodes(sheaf: Sheaf) -> dict[str, dict[str, bool]]:
    """A node is in the circuit if something reads it; the logits if they read something."""
    senders = {name.partition("->")[0] for name in sheaf.edges}
    reached = {"logits"} if any(name.endswith("->logits") for name in sheaf.edges) else set()
    return {name: {"in_graph": name in senders | reached} for name in sheaf.layout.graph.nodes}


def _load(path: Path) -> dict[str, Any]:
    """The file's contents, with the keys that every such file has."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SheafError(f"The circuit {path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise SheafError(f"{path} is not JSON; get or write it again.") from None
    if not isinstance(data, dict) or not isinstance(data.get("edges"), dict):
        raise SheafError(f"{path} is not a circuit: it has no edges; get or write it again.")
    return data


def _is_edge(edge: Any) -> bool:
    """Whether an entry says if the edge is kept, and how much it counts."""
    if not isinstance(edge, dict) or type(edge.get("in_graph")) is not bool:
        return False
    score: Any = edge.get("score")
    return type(score) in (int, float) and abs(score) <= torch.finfo(torch.float32).max


def _refuse(path: Path, has: str, names: Iterable[str]) -> None:
    """Raise with the first of the names, if there are any."""
    if listed := sorted(names):
        more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
        raise SheafError(f"{path} has {has}: {', '.join(listed[:SHOWN])}{more}.")


def _weights_beside(path: Path, data: dict[str, Any], model: MaskedTransformer) -> Sheaf:
    """The sheaf whose weights the file points to; all weights where it points nowhere."""
    extra = data.get("discogp")
    if isinstance(extra, dict) and extra.get("checkpoint_sha256") != model.checkpoint_sha256:
        raise SheafError(
            f"{path} is a circuit of {extra.get('model')!r}, of another checkpoint than "
            f"{model.name!r}; load the model it was found in."
        )
    pointer = extra.get("weights") if isinstance(extra, dict) else None
    if pointer is None:
        return Sheaf.full(model)
    name = pointer.get("file") if isinstance(pointer, dict) else None
    if not isinstance(name, str) or Path(name).name != name:
        raise SheafError(f"{path} does not name a file beside it for its weights.")
    beside = path.with_name(name)
    sheaf = Sheaf.load(beside)
    if file_sha256(beside) != pointer.get("sha256"):
        raise SheafError(f"{beside} is not the file that {path} was written with; get both again.")
    sheaf.check_fits(model)
    return sheaf
