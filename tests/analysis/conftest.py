"""Sheaves of tiny shapes with random masks; no model is needed to count them."""

from collections.abc import Callable

import pytest
import torch

from discogp_lib.layout import Layout, unflatten
from discogp_lib.sheaf import Sheaf

TINY_GPT2 = Layout("gpt2", 2, 2, 2, 8, 4, 12, attention_bias=True, mlp_bias=True)
TINY_LLAMA = Layout("llama", 3, 4, 2, 8, 2, 12, attention_bias=False, mlp_bias=False)
GPT2_GRAPH = Layout("gpt2", 12, 12, 12, 24, 2, 8, attention_bias=True, mlp_bias=True)
"""The edges of GPT-2 small, with far fewer weights."""


@pytest.fixture(scope="session", params=[TINY_GPT2, TINY_LLAMA], ids=["gpt2", "llama"])
def layout(request: pytest.FixtureRequest) -> Layout:
    return request.param


@pytest.fixture(scope="session")
def tiny_gpt2() -> Layout:
    return TINY_GPT2


@pytest.fixture(scope="session")
def gpt2_graph() -> Layout:
    return GPT2_GRAPH


@pytest.fixture(scope="session")
def random_sheaf() -> Callable[..., Sheaf]:
    """A sheaf of random masks."""

    def make(layout: Layout, seed: int, edges: float = 0.3, weights: float = 0.3) -> Sheaf:
        noise = torch.Generator().manual_seed(seed)
        return Sheaf(
            layout=layout,
            model_name="tiny",
            checkpoint_sha256="0" * 64,
            edge_mask=torch.rand(layout.graph.n_edges, generator=noise) < edges,
            weight_masks=unflatten(torch.rand(layout.n_weights, generator=noise) < weights, layout),
        )

    return make
