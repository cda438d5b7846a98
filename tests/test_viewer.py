"""The drawing of a sheaf: well formed, small, alone in itself, and alive in a real browser."""

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from discogp_lib import grid
from discogp_lib.layout import Layout, unflatten
from discogp_lib.sheaf import Sheaf
from discogp_lib.viewer import MAX_EDGES, save_png, sheaf_html

GPT2_GRAPH = Layout("gpt2", 12, 12, 12, 24, 2, 8, attention_bias=True, mlp_bias=True)
MINI = Layout("gpt2", 3, 2, 2, 8, 4, 12, attention_bias=True, mlp_bias=True)
SHARED = Layout("llama", 3, 4, 2, 8, 2, 12, attention_bias=False, mlp_bias=False)
LIMIT = 300_000
"""Bytes that a notebook may spend on one drawing."""


def make_sheaf(layout: Layout, n_edges: int, weights: float = 0.1, seed: int = 0) -> Sheaf:
    noise = torch.Generator().manual_seed(seed)
    order = torch.randperm(layout.graph.n_edges, generator=noise)
    edges = torch.zeros(layout.graph.n_edges, dtype=torch.bool)
    edges[order[:n_edges]] = True
    kept = torch.rand(layout.n_weights, generator=noise) < weights
    about = {"task": "<ioi> & more", "method": "discogp", "seed": seed}
    return Sheaf(layout, "tiny", "0" * 64, edges, unflatten(kept, layout), about)


def svg(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


def titles(html: str, kind: str) -> list[str]:
    space = "{http://www.w3.org/2000/svg}"
    group = next(g for g in svg(html).iter(f"{space}g") if g.get("class") == kind)
    return [str(title.text) for title in group.iter(f"{space}title")]


def test_every_node_and_every_kept_edge_is_drawn_under_its_name():
    sheaf = make_sheaf(MINI, 25)
    html = sheaf_html(sheaf)
    assert sorted(titles(html, "dgp-edges")) == sorted(sheaf.edges)
    nodes = [title.split(":")[0] for title in titles(html, "dgp-nodes")]
    assert sorted(nodes) == sorted(MINI.graph.nodes)
    image = svg(html)
    assert image.get("role") == "img"
    assert "25 of" in str(image.get("aria-label"))


def test_node_titles_count_what_the_masks_say():
    sheaf = make_sheaf(MINI, 25)
    found = dict(title.split(": ", 1) for title in titles(sheaf_html(sheaf), "dgp-nodes"))
    mlp = {n: m for n, m in sheaf.weight_masks.items() if ".1.mlp." in n}
    kept, available = (sum(int(f(m)) for m in mlp.values()) for f in (torch.sum, torch.numel))
    incoming = sum(edge.endswith("->m1") for edge in sheaf.edges)
    outgoing = sum(edge.startswith("m1->") for edge in sheaf.edges)
    weights = f"{kept:,} of {available:,} weights ({kept / available:.2%})"
    assert found["m1"] == f"{weights}, {incoming} edges in, {outgoing} out"
    first = sheaf.weight_masks["transformer.h.0.attn.c_attn.weight"].view(8, 3, 2, 4)
    biases = sheaf.weight_masks["transformer.h.0.attn.c_attn.bias"].view(3, 2, 4)
    out = sheaf.weight_masks["transformer.h.0.attn.c_proj.weight"].view(2, 4, 8)
    head = int(first[:, :, 1].sum() + biases[:, 1].sum() + out[1].sum())
    assert found["a0.h1"].startswith(f"{head:,} of {8 * 3 * 4 + 3 * 4 + 4 * 8:,} weights")


def test_heads_that_share_keys_and_values_are_drawn_at_their_first():
    sheaf = make_sheaf(SHARED, SHARED.graph.n_edges)
    edges = grid.edges(sheaf).set_index("edge")
    assert edges.loc["m0->a2.kv1<k>", "receiver"] == "a2.h2"
    assert edges.loc["m0->a2.h1<q>", "receiver"] == "a2.h1"
    nodes = grid.nodes(sheaf).set_index("node")
    # Of a head: queries, outputs, and the keys and values of its group, each 8 x 2.
    assert nodes.loc["a1.h3", "available"] == 4 * 8 * 2
    assert 'data-to="a2.h2"' in sheaf_html(sheaf)


def test_the_same_node_is_at_the_same_place_in_every_drawing():
    a, b = (grid.nodes(make_sheaf(MINI, n, seed=n)) for n in (5, 40))
    assert a[["node", "x", "y"]].equals(b[["node", "x", "y"]])
    assert not a[["x", "y"]].duplicated().any()


def test_area_grows_with_the_share_of_kept_weights():
    nodes = grid.nodes(make_sheaf(MINI, 25))
    inner = nodes[nodes["available"] > 0]
    ratio = inner["radius"] ** 2 / inner["share"]
    assert ratio.min() == pytest.approx(ratio.max())
    assert inner["radius"].max() == pytest.approx(grid.largest_radius(MINI))


def test_the_opaque_edges_lie_between_the_nodes_that_keep_most():
    edges = grid.edges(make_sheaf(GPT2_GRAPH, 600))
    nodes = grid.nodes(make_sheaf(GPT2_GRAPH, 600)).set_index("node")["share"]
    assert edges["strong"].sum() == grid.STRONG
    share = nodes.fillna(nodes.max())
    product = edges["sender"].map(share) * edges["receiver"].map(share)
    assert product[edges["strong"]].min() >= product[~edges["strong"]].max()


@pytest.mark.parametrize("n_edges", [0, 2_000, MAX_EDGES, GPT2_GRAPH.graph.n_edges])
def test_a_sheaf_of_gpt2_is_small_whatever_it_keeps(n_edges: int):
    html = sheaf_html(make_sheaf(GPT2_GRAPH, n_edges))
    assert len(html.encode()) < LIMIT
    assert len(titles(html, "dgp-edges")) == (n_edges if n_edges <= MAX_EDGES else 0)
    assert ("too many to draw" in html) == (n_edges > MAX_EDGES)


def test_a_sheaf_without_weights_or_with_all_is_drawn():
    for weights in (0.0, 1.0):
        html = sheaf_html(make_sheaf(MINI, 10, weights))
        assert not re.search(r"\bnan\b", html)


def test_nothing_is_fetched_and_nothing_has_an_id():
    html = sheaf_html(make_sheaf(MINI, 25))
    addresses = set(re.findall(r"\w+://[^\s\"'<>]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, never fetched
    assert not re.search(r"\s(id|src|href|onclick|onload)=", html)
    assert not re.search(r"@import|url\(|fetch|XMLHttp|localStorage", html)


def test_what_a_sheaf_calls_itself_cannot_break_the_page():
    html = sheaf_html(make_sheaf(MINI, 25))
    assert "<ioi>" not in html
    assert "&lt;ioi&gt; &amp; more" in html

    class Open(HTMLParser):
        tags: list[str]

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.tags.pop() == tag

    parser = Open()
    parser.tags = []
    parser.feed(html)
    assert parser.tags == []


def test_a_notebook_shows_the_drawing_and_a_picture_can_be_saved(tmp_path: Path):
    sheaf = make_sheaf(MINI, 25)
    assert sheaf._repr_html_() == sheaf_html(sheaf)
    save_png(sheaf, tmp_path / "sheaf.png")
    assert (tmp_path / "sheaf.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A headless Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


def test_in_a_browser_it_names_what_is_pointed_at_and_filters_by_layer(browser, tmp_path: Path):
    first, second = make_sheaf(GPT2_GRAPH, 660), make_sheaf(MINI, 25, seed=1)
    page = browser.new_page(viewport={"width": 1040, "height": 1100})
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url))
    # Two drawings on one page, as in a notebook.
    page.set_content(f"<body>{sheaf_html(first)}{sheaf_html(second)}</body>")
    upper, lower = page.locator(".dgp-sheaf").all()

    idle = upper.locator("output").inner_text()
    upper.locator(".dgp-nodes g", has_text="a5.h2:").hover()
    assert upper.locator("output").inner_text().startswith("a5.h2: ")
    touching = [e for e in first.edges if re.search(r"(^|->)a5\.h2(<|-|$)", e)]
    lit = upper.locator(".dgp-edges path.on title").all_text_contents()
    assert sorted(lit) == sorted(touching)
    assert lower.locator(".on").count() == 0
    assert not lower.locator("output").inner_text().startswith("a5")
    page.mouse.move(2, 2)
    assert upper.locator("output").inner_text() == idle
    assert upper.locator(".on").count() == 0

    def visible(box) -> list[str]:
        script = "paths => paths.filter(p => p.getClientRects().length).map(p => p.textContent)"
        return box.locator(".dgp-edges path").evaluate_all(script)

    assert len(visible(upper)) == 660
    upper.locator("select").select_option("5")
    expected = [e for e in first.edges if re.search(r"->(a5\.h\d+<|m5$)", e)]
    assert sorted(visible(upper)) == sorted(expected)
    assert len(visible(lower)) == 25
    upper.locator("select").select_option("")
    assert len(visible(upper)) == 660

    page.screenshot(path=tmp_path / "viewer.png", full_page=True)
    assert (tmp_path / "viewer.png").stat().st_size > 10_000
    assert problems == []
