"""Where do sheaves of factual recall keep their weights, and which way do their edges run?

The paper counts, layer by layer, kept MLP and attention weights, edges from earlier MLPs into a
layer's attention heads, and edges from attention heads into a layer's MLP. The counts alone
cannot say much: an MLP has twice the weights of a layer's attention (GPT-2), and into the heads
of layer l run (H + 2 KV) l edges from MLPs, into its MLP only H (l + 1) from heads; at the last
layer of GPT-2 small that is 396 against 144. So every count comes with what was available and
with what a random mask of the same density would keep there.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from discogp_lib.analysis.chance import shared_by_chance
from discogp_lib.analysis.parts import Found, edge_table, kept_weights
from discogp_lib.intervals import half_width
from discogp_lib.sheaf import Sheaf

PANELS = {
    "weights": ("MLP", "attention"),
    "edges": ("MLP to attention", "attention to MLP"),
}
"""The two panels of the paper's figure and the curves of each."""

COLUMNS = ["panel", "series", "layer", "kept", "available"]

Z = float(stats.norm.ppf(0.975))


def recall_table(sheaves: Found) -> pd.DataFrame:
    """Kept weights and edges of every sheaf, layer by layer.

    sheaves: by relation (or any task) and seed.
    Columns: `relation`, `seed`, `panel` (weights, edges), `series` (see
    `PANELS`), `layer`, `kept`, `available`, `share` (of what was available; missing where
    nothing was), and for random masks with as many edges and weights in all: `random` and
    `random_spread` (mean and standard deviation of `kept`).
    """
    parts = [
        layer_counts(sheaf).assign(relation=relation, seed=seed)
        for relation, found in sheaves.items()
        for seed, sheaf in found.items()
    ]
    columns = ["relation", "seed", *COLUMNS, "share", "random", "random_spread"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def layer_counts(sheaf: Sheaf) -> pd.DataFrame:
    """The rows of `recall_table` for one sheaf."""
    table = pd.concat([_weights(sheaf), _edges(sheaf)], ignore_index=True)
    totals = {
        "weights": (sheaf.n_weights, sheaf.kept_weights),
        "edges": (sheaf.n_edges, sheaf.kept_edges),
    }
    random = [
        shared_by_chance(totals[panel][0], totals[panel][1], int(available))
        for panel, available in zip(table["panel"], table["available"], strict=True)
    ]
    return table.assign(
        share=table["kept"] / table["available"].where(table["available"] > 0),
        random=[chance.mean for chance in random],
        random_spread=[chance.spread for chance in random],
    )


def _weights(sheaf: Sheaf) -> pd.DataFrame:
    """Kept and available weights of each layer's MLP and attention."""
    sums = kept_weights(sheaf).groupby(["kind", "layer"])[["kept", "available"]].sum()
    table = sums.sort_index(level=["kind", "layer"], ascending=[False, True]).reset_index()
    series = table.pop("kind").map({"mlp": "MLP", "attention": "attention"})
    return table.assign(panel="weights", series=series)[COLUMNS]


def _edges(sheaf: Sheaf) -> pd.DataFrame:
    """Kept and available edges that end at each layer, in both directions."""
    edges = edge_table(sheaf.layout.graph).assign(kept=sheaf.edge_mask.numpy())
    into_heads = edges["input"].isin(["q", "k", "v"])
    chosen = {
        "MLP to attention": into_heads & (edges["sender_kind"] == "mlp"),
        "attention to MLP": (edges["input"] == "mlp") & (edges["sender_kind"] == "head"),
    }
    tables = []
    for series, rows in chosen.items():
        kept = edges["kept"][rows].groupby(edges["layer"])
        counts = pd.DataFrame({"kept": kept.sum(), "available": kept.size()})
        # Into the heads of the first layer no MLP can send: it has its row, with nothing in it.
        counts = counts.reindex(pd.RangeIndex(sheaf.layout.n_layers, name="layer"), fill_value=0)
        tables.append(counts.reset_index().assign(panel="edges", series=series))
    return pd.concat(tables)[COLUMNS]


def over_relations(table: pd.DataFrame) -> pd.DataFrame:
    """Mean over relations of `recall_table`, with bands.

    Seeds are averaged within a relation first. Columns: `panel`, `series`, `layer`, `measure`
    (kept, share), `mean`, `low`, `high` (95 % interval of the mean over relations, Student's t),
    `random`, `random_low`, `random_high` (the same mean for random masks of the same densities,
    and the range in which 95 % of such means lie), `n_relations`.
    """
    rows = []
    for (panel, series, layer), group in table.groupby(["panel", "series", "layer"], sort=False):
        available = int(group["available"].iloc[0])
        n_seeds = group.groupby("relation")["seed"].transform("size")
        n = group["relation"].nunique()
        random = float((group["random"] / n_seeds).sum() / n)
        spread = float(np.sqrt(((group["random_spread"] / n_seeds) ** 2).sum()) / n)
        kept = group.groupby("relation")["kept"].mean()
        half = float(half_width(kept.std(), n))
        for measure, scale in (("kept", 1.0), ("share", available or np.nan)):
            values = {
                "mean": kept.mean(),
                "low": np.maximum(kept.mean() - half, 0.0),
                "high": np.minimum(kept.mean() + half, available),
                "random": random,
                "random_low": max(random - Z * spread, 0.0),
                "random_high": random + Z * spread,
            }
            row = {"panel": panel, "series": series, "layer": layer, "measure": measure}
            rows.append(row | {k: v / scale for k, v in values.items()} | {"n_relations": n})
    columns = ["panel", "series", "layer", "measure", "mean", "low", "high"]
    columns += ["random", "random_low", "random_high", "n_relations"]
    return pd.DataFrame(rows, columns=columns)


def by_depth(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's two comparisons in the lower and in the upper half of the layers.

    Takes `recall_table`. Per panel the first series of `PANELS` is compared with the second: kept
    MLP weights with attention weights, edges from MLPs to attention with those back. Columns:
    `panel`, `layers` (lower, upper, all), `first`, `second` (kept, mean over relations), `raw`
    (first over second, as the paper counts), `available` (the same ratio of what there is: what a
    random mask gives on average), `normalised` (raw over available), `above` (in how many
    relations the first is above the second for what there is), `n_relations`, and `p` (two-sided
    sign test of `above`; ties left out).
    """
    columns = ["panel", "layers", "first", "second", "raw", "available", "normalised"]
    rows = []
    middle = (table["layer"].max() + 1) / 2
    for panel, (one, two) in PANELS.items():
        for layers in ("lower", "upper", "all"):
            here = (table["layer"] < middle) if layers == "lower" else (table["layer"] >= middle)
            chosen = table[(table["panel"] == panel) & (here | (layers == "all"))]
            if chosen.empty:
                continue
            sums = chosen.groupby(["relation", "seed", "series"])[["kept", "available"]].sum()
            means = sums.groupby(["relation", "series"]).mean().unstack("series")
            kept, there = means["kept"], means["available"].iloc[0]
            shares = kept / there
            above = int((shares[one] > shares[two]).sum())
            below = int((shares[one] < shares[two]).sum())
            first, second = kept[one].mean(), kept[two].mean()
            raw = first / second if second else np.inf if first else np.nan
            available = there[one] / there[two]
            normalised = raw / available if available else np.nan
            values = (panel, layers, first, second, raw, available, normalised)
            row = dict(zip(columns, values, strict=True)) | {"above": above}
            tested = stats.binomtest(above, above + below).pvalue if above + below else 1.0
            rows.append(row | {"n_relations": len(kept), "p": tested})
    return pd.DataFrame(rows, columns=[*columns, "above", "n_relations", "p"])


def outside_band(table: pd.DataFrame) -> pd.DataFrame:
    """At how many layers the mean over relations lies above and below the random-mask band.

    Takes `over_relations`. Columns: `panel`, `series`, `above`, `inside`, `below`, `n_layers`
    (layers where anything is available).
    """
    rows = []
    kept = table[table["measure"] == "share"].dropna(subset=["mean"])
    for (panel, series), group in kept.groupby(["panel", "series"], sort=False):
        above = int((group["mean"] > group["random_high"]).sum())
        below = int((group["mean"] < group["random_low"]).sum())
        row = {"panel": panel, "series": series, "above": above, "below": below}
        rows.append(row | {"inside": len(group) - above - below, "n_layers": len(group)})
    columns = ["panel", "series", "above", "inside", "below", "n_layers"]
    return pd.DataFrame(rows, columns=columns)
