"""A sheaf to look at in a notebook: one piece of HTML that needs nothing else.

The drawing is static SVG, so it shows where scripts are off; a few lines of script add what the
mouse points at, its edges, and a filter by layer. Everything is found by class inside its own
box and nothing has an id, so a page may hold many. Colours of text and nodes are the page's own,
so it reads on light and on dark.
"""

from __future__ import annotations

from collections.abc import Hashable
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from discogp_lib import grid
from discogp_lib.paths import atomic_path
from discogp_lib.sheaf import Sheaf

MAX_EDGES = 2_500
"""Beyond this many edges no single one could be made out: the drawing then gives counts only."""

STYLE = """
.dgp-sheaf{font:13px/1.4 system-ui,sans-serif;max-width:1000px}
.dgp-sheaf svg{width:100%;height:auto;display:block;overflow:visible}
.dgp-sheaf text{font-size:12px;fill:currentColor;text-anchor:middle;dominant-baseline:middle}
.dgp-sheaf .dgp-edges path{fill:none;stroke-width:1.2;opacity:var(--faint)}
.dgp-sheaf .dgp-edges .s{opacity:.9;stroke-width:1.6}
.dgp-sheaf .dgp-nodes g{cursor:default}
.dgp-sheaf .dgp-nodes .c{fill:transparent;stroke:currentColor;stroke-opacity:.25}
.dgp-sheaf .dgp-nodes .k{fill:currentColor}
.dgp-sheaf .off{display:none}
.dgp-sheaf .dgp-edges.some path{opacity:.03}
.dgp-sheaf .dgp-edges.some path.on{opacity:1;stroke-width:2.2}
.dgp-sheaf .dgp-nodes g.on .c{stroke-opacity:1;stroke-width:2.5}
.dgp-sheaf .dgp-bar{display:flex;flex-wrap:wrap;gap:.2em 1.2em;align-items:center}
.dgp-sheaf .dgp-key::before{content:"";display:inline-block;width:1.4em;height:3px;
margin-right:.4em;vertical-align:middle;background:var(--c)}
.dgp-sheaf output{display:block;min-height:1.4em;font-variant-numeric:tabular-nums}
"""

SCRIPT = """
for (const box of document.querySelectorAll('.dgp-sheaf:not([data-live])')) {
  box.dataset.live = '';
  const all = (s) => [...box.querySelectorAll(s)];
  const edges = box.querySelector('.dgp-edges'), out = box.querySelector('output');
  const idle = out.textContent, nodes = {};
  const title = (e) => e.querySelector('title').textContent;
  for (const g of all('.dgp-nodes g')) nodes[title(g).split(':')[0]] = g;
  const ends = all('.dgp-edges path').map((path) => {
    const name = title(path), [from, to] = name.split('->');
    return {path, name, from, to: path.dataset.to || to.split('<')[0]};
  });
  const clear = () => {
    edges.classList.remove('some');
    all('.on').forEach((e) => e.classList.remove('on'));
    out.textContent = idle;
  };
  const show = (text, some) => {
    clear();
    edges.classList.add('some');
    for (const e of some) for (const x of [e.path, nodes[e.from], nodes[e.to]])
      if (x) x.classList.add('on');
    out.textContent = text;
  };
  for (const [name, g] of Object.entries(nodes)) {
    g.addEventListener('mouseenter', () => {
      show(title(g), ends.filter((e) => e.from === name || e.to === name));
      g.classList.add('on');
    });
    g.addEventListener('mouseleave', clear);
  }
  for (const e of ends) {
    e.path.addEventListener('mouseenter', () => show(e.name, [e]));
    e.path.addEventListener('mouseleave', clear);
  }
  box.querySelector('select').addEventListener('change', (event) => {
    const layer = event.target.value;
    for (const g of all('.dgp-edges g'))
      g.classList.toggle('off', layer !== '' && g.dataset.layer !== layer);
  });
}
"""


def sheaf_html(sheaf: Sheaf) -> str:
    """The sheaf as HTML: SVG, style and script in one piece, below 300 kB."""
    nodes = grid.nodes(sheaf)
    drawn = sheaf.kept_edges <= MAX_EDGES
    body = _edges(grid.edges(sheaf)) if drawn else '<g class="dgp-edges"></g>'
    summary = describe(sheaf)
    strong = " Opaque: the edges between the nodes that keep the largest shares of their weights."
    if not drawn:
        note = f"{sheaf.kept_edges:,} edges are too many to draw; point at a node for its counts."
    elif sheaf.kept_edges > grid.STRONG:
        note = f"Point at a node or an edge.{strong}"
    else:
        note = "Point at a node or an edge."
    label = escape(f"Sheaf of {summary}", quote=True)
    # A quarter of the ink at 400 edges, a tenth at 2,000: the whole stays about as dark.
    faint = min(0.9, max(0.1, 100 / max(sheaf.kept_edges - grid.STRONG, 1)))
    return (
        f'<div class="dgp-sheaf"><style>{STYLE}</style><div><b>{escape(summary)}</b></div>'
        f"{_bar(sheaf)}"
        f'<svg viewBox="0 0 {grid.WIDTH} {grid.height(sheaf.layout)}" role="img" '
        f'aria-label="{label}" '
        f'style="--faint:{faint:.2f}" xmlns="http://www.w3.org/2000/svg">'
        f"{_labels(sheaf)}{body}{_nodes(nodes, grid.largest_radius(sheaf.layout))}</svg>"
        f"<output>{escape(note)}</output></div><script>{{{SCRIPT}}}</script>"
    )


def describe(sheaf: Sheaf) -> str:
    """What the sheaf is and how much it keeps, in one line."""
    about = [str(sheaf.metadata[key]) for key in ("task", "method") if key in sheaf.metadata]
    if "seed" in sheaf.metadata:
        about.append(f"seed {sheaf.metadata['seed']}")
    return (
        f"{', '.join([sheaf.model_name, *about])}: "
        f"{sheaf.kept_edges:,} of {sheaf.n_edges:,} edges ({sheaf.edge_density:.2%}), "
        f"{sheaf.kept_weights:,} of {sheaf.n_weights:,} weights ({sheaf.weight_density:.2%})"
    )


def save_png(sheaf: Sheaf, path: str | Path) -> None:
    """The same drawing as a picture, for where HTML is not shown."""
    from discogp_lib import plots

    figure = plots.sheaf_drawing(grid.nodes(sheaf), grid.edges(sheaf))
    with atomic_path(path) as temporary, plots.house_style():
        figure.savefig(temporary, format="png", metadata={"Software": None})


def _bar(sheaf: Sheaf) -> str:
    """The filter and the key to the colours."""
    layers = "".join(
        f'<option value="{layer}">layer {layer}</option>' for layer in range(sheaf.layout.n_layers)
    )
    keys = "".join(
        f'<span class="dgp-key" style="--c:{colour}">{grid.INPUT_NAMES[kind]}</span>'
        for kind, colour in grid.INPUT_COLOURS.items()
    )
    return (
        '<div class="dgp-bar"><label>edges into <select><option value="">every layer</option>'
        f'{layers}<option value="{sheaf.layout.n_layers}">the logits</option></select></label>'
        f"{keys}</div>"
    )


def _labels(sheaf: Sheaf) -> str:
    """Names of rows and columns."""
    return "".join(
        f'<text x="{x}" y="{y}">{text}</text>' for x, y, text in grid.labels(sheaf.layout)
    )


def _nodes(nodes: pd.DataFrame, ring: float) -> str:
    """Circles whose area is the share of kept weights; a thin ring where a node could be."""
    parts = []
    for row in nodes.to_dict("records"):
        at = f'cx="{row["x"]}" cy="{row["y"]}"'
        about = f"{row['edges_in']:,} edges in, {row['edges_out']:,} out"
        if row["available"]:
            counts = f"{row['kept']:,} of {row['available']:,} weights ({row['share']:.2%})"
            about = f"{counts}, {about}"
        disc = f'<circle class="k" {at} r="{row["radius"]:.1f}"/>' if row["radius"] else ""
        outline = f'<circle class="c" {at} r="{ring:.0f}"/>'
        parts.append(f"<g><title>{row['node']}: {about}</title>{outline}{disc}</g>")
    return f'<g class="dgp-nodes">{"".join(parts)}</g>'


def _edges(edges: pd.DataFrame) -> str:
    """Curves grouped by the layer and the kind of input they end in, the opaque ones on top."""
    groups: dict[tuple[bool, int, str], list[str]] = {}
    for edge in edges.to_dict("records"):
        key = (bool(edge["strong"]), int(edge["layer"]), str(edge["input"]))
        groups.setdefault(key, []).append(_path(edge))
    parts = [
        f'<g data-layer="{layer}" stroke="{grid.INPUT_COLOURS[kind]}">{"".join(groups[key])}</g>'
        for key in sorted(groups)
        for _, layer, kind in [key]
    ]
    return f'<g class="dgp-edges">{"".join(parts)}</g>'


def _path(edge: dict[Hashable, Any]) -> str:
    """One edge, in as few bytes as will do."""
    x, y = edge["x0"], edge["y0"]
    steps = [edge[f"{axis}{n}"] - (x, y)[axis == "y"] for n in (1, 2, 3) for axis in "xy"]
    curve = f"M{x:.0f} {y:.0f}c{' '.join(f'{step:.0f}' for step in steps)}"
    title = escape(edge["edge"]).replace("&gt;", ">")
    look = ' class="s"' if edge["strong"] else ""
    # Into keys and values that heads share: the node it is drawn to has another name.
    drawn_to = f' data-to="{edge["receiver"]}"' if ".kv" in edge["edge"] else ""
    return f'<path{look}{drawn_to} d="{curve}"><title>{title}</title></path>'
