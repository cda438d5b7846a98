"""What the analyses found, in sentences made from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from discogp_lib.analysis.composition import differences
from discogp_lib.analysis.likeness import by_likeness
from discogp_lib.intervals import half_width

CLOSE = 0.05
"""A union this close to the sheaf alone counts as preserved."""
MEASURES = {
    "iou": "intersection over union",
    "ratio": "ratio to chance",
    "ratio_matched": "ratio to chance, matched by part",
}


def composition_findings(table: pd.DataFrame) -> list[str]:
    """Whether unions work, and whether that is more than noise of the same size would do."""
    changes = differences(table)
    pairs = changes[changes["size"] == 2]
    if pairs.empty:
        return ["There are no two sheaves of one seed, so nothing could be joined."]
    means = pairs.groupby(["task", "joined"], sort=False).mean(numeric_only=True)
    n, close = len(means), int((means["change"] >= -CLOSE).sum())
    task, joined = means.index[int(means["change"].argmin())]
    texts = [
        f"Over {n} ordered pairs the union is right on {means['composed'].min():.1%} to "
        f"{means['composed'].max():.1%} of the prompts of the column's task (in the paper 80.3 % "
        f"to 100 %). Joining changes accuracy by {points(pairs, 'change')}. {close} of {n} unions "
        f"stay within {100 * CLOSE:.0f} points of the sheaf alone; the largest change is "
        f"{_signed(means['change'].min())} points, {task} joined with {joined}.",
        "The same sheaves joined with as many random edges and weights change by "
        f"{_signed((pairs['random'] - pairs['original']).mean())} points (matched by part: "
        f"{_signed((pairs['matched'] - pairs['original']).mean())}). Against that control the "
        f"other task's sheaf makes a difference of {points(pairs, 'over_random')}, and "
        f"{points(pairs, 'over_matched')} if matched; it does worse than random masks in "
        f"{int((means['over_random'] < 0).sum())} of {n} pairs, better in "
        f"{int((means['over_random'] > 0).sum())}.",
    ]
    texts.append(_live(table))
    largest = int(changes["size"].max())
    if largest > 2:
        last = changes[changes["size"] == largest]
        texts.append(
            f"With {largest} sheaves joined, accuracy is {last['composed'].mean():.1%} (alone "
            f"{last['original'].mean():.1%}; with random masks of that size "
            f"{last['random'].mean():.1%}, matched by part {last['matched'].mean():.1%}); the "
            f"change is {points(last, 'change')}."
        )
    return texts


def _live(table: pd.DataFrame) -> str:
    """Whether the additions are part of the computation at all."""
    alone = table[table["kind"] == "original"].set_index(["seed", "task"])
    pairs = table[table["size"] == 2]
    before = alone.loc[list(zip(pairs["seed"], pairs["task"], strict=True))]
    texts = []
    for kind in ("edges", "weights"):
        added = pairs[kind] - before[kind].to_numpy()
        live = pairs[f"live_{kind}"] - before[f"live_{kind}"].to_numpy()
        sums = pd.DataFrame({"live": live, "added": added}).groupby(pairs["kind"]).sum()
        shares = sums["live"] / sums["added"].where(sums["added"] > 0)
        texts.append(
            f"{shares['composed']:.0%} of the {kind} (random {shares['random']:.0%}, matched "
            f"{shares['matched']:.0%})"
        )
    return f"Of what is added, {' and '.join(texts)} can change the logits at all."


def overlap_findings(pairs: pd.DataFrame, means: pd.DataFrame, tests: pd.DataFrame) -> list[str]:
    """How far overlap is from chance, from seeds of one task, and whether it tracks likeness.

    Takes `seed_overlap`, `over_seeds` of it, and `similarity_tests`.
    """
    between = means[means["a"] != means["b"]]
    if between.empty:
        return ["There are no sheaves of two tasks, so nothing could be compared."]
    texts = [
        _against_chance(between[between["kind"] == kind], kind) for kind in ("edges", "weights")
    ]
    if (means["a"] == means["b"]).any():
        texts += [_against_seeds(means, kind) for kind in ("edges", "weights")]
    else:
        texts.append("No task has two seeds, so there is no yardstick of what the same looks like.")
    different = pairs[pairs["a"] != pairs["b"]]
    same = different["seed_a"] == different["seed_b"]
    if same.any() and not same.all():
        ratios = different.groupby([same, "kind"])["ratio"].mean()
        texts.append(
            "Searches of one seed draw the same random numbers, which might make sheaves alike: "
            f"two tasks share {ratios[True, 'edges']:.2f} times the edges and "
            f"{ratios[True, 'weights']:.2f} times the weights expected by chance at the same seed, "
            f"{ratios[False, 'edges']:.2f} and {ratios[False, 'weights']:.2f} times at different "
            "seeds."
        )
    return texts + _tracking(tests)


def _against_chance(rows: pd.DataFrame, kind: str) -> str:
    ratio, matched = rows["ratio"], rows["ratio_matched"]
    excess, left = ratio.mean() - 1, max(matched.mean() - 1, 0.0)
    where = (
        f": {1 - left / excess:.0%} of the excess over chance is where in the model sheaves lie, "
        "not which entries they choose there"
        if 0 < excess >= left
        else ""
    )
    return (
        f"{kind.capitalize()}: two tasks share {rows['iou'].min():.1%} to {rows['iou'].max():.1%} "
        f"of the union ({len(rows)} pairs), {ratio.mean():.1f} times what random masks of these "
        f"sizes share ({ratio.min():.1f} to {ratio.max():.1f}). Against random masks with the same "
        f"sizes in every part of the model it is {matched.mean():.2f} times ({matched.min():.2f} "
        f"to {matched.max():.2f}){where}."
    )


def _against_seeds(means: pd.DataFrame, kind: str) -> str:
    texts = []
    for value, name in MEASURES.items():
        rows = by_likeness(means[means["kind"] == kind], value).set_index("tasks")["mean"]
        shown = ", ".join(
            f"{_number(rows[likeness], value)} for {likeness} tasks"
            for likeness in ("similar", "different")
            if likeness in rows
        )
        texts.append(f"{name} {_number(rows['same'], value)} for seeds of the same task, {shown}")
    return f"{kind.capitalize()} against the yardstick: {'; '.join(texts)}."


def _tracking(tests: pd.DataFrame) -> list[str]:
    """One sentence per group of tasks that could be tested."""
    texts = []
    for group, rows in tests.dropna(subset=["p"]).groupby("tasks", sort=False):
        parts = [
            f"{r['kind']}, {MEASURES[r['measure']]}: {_number(r['within'], r['measure'])} within "
            f"a class and {_number(r['between'], r['measure'])} between, p = {r['p']:.2g}"
            for r in rows.to_dict("records")
        ]
        texts.append(
            f"Do similar tasks overlap more ({group})? {'; '.join(parts)} (permutation test; with "
            f"these tasks p cannot be below {rows['least_p'].max():.2g})."
        )
    return texts or ["The tasks at hand allow no test of whether similar tasks overlap more."]


def recall_findings(facts: pd.DataFrame, others: pd.DataFrame, bands: pd.DataFrame) -> list[str]:
    """The paper's two observations raw, for what there is, and in tasks that recall nothing.

    Takes `by_depth` of the relations and of the other tasks, and `outside_band`.
    """
    if facts.empty:
        return ["No relation has been run, so there is nothing to say about factual recall."]
    words = {
        "weights": ("lower", "MLPs keep", "the weights that attention keeps", "MLP", "attention"),
        "edges": (
            "upper",
            "edges from MLPs to attention are",
            "as many as edges back",
            "MLP to attention",
            "attention to MLP",
        ),
    }
    texts = []
    for panel, (layers, subject, rest, first, second) in words.items():
        row = _row(facts, panel, layers)
        text = (
            f"In the {layers} half of the layers {subject} {row['raw']:.2f} times {rest}. "
            f"Available are {row['available']:.2f} times as many, so for what there is the ratio "
            f"is {row['normalised']:.2f}; {first} is above {second} in {row['above']:.0f} of "
            f"{row['n_relations']:.0f} relations (sign test, p = {row['p']:.2g})."
        )
        other = "lower" if layers == "upper" else "upper"
        text += f" In the {other} half it is {_row(facts, panel, other)['normalised']:.2f}."
        if not others.empty:
            control = _row(others, panel, layers)
            text += (
                f" In the {control['n_relations']:.0f} tasks that recall no facts it is "
                f"{control['normalised']:.2f} in the {layers} half."
            )
        texts.append(text)
    counts = [
        f"{r['series']} above at {r['above']}, inside at {r['inside']} and below at {r['below']} "
        f"of {r['n_layers']} layers"
        for r in bands.to_dict("records")
    ]
    texts.append(f"Against random masks of the same densities: {'; '.join(counts)}.")
    return texts


def points(rows: pd.DataFrame, value: str) -> str:
    """A mean in points of accuracy, with its 95 % interval over seeds where there are several.

    Seeds of which some have fewer tasks differ in more than chance, and give no interval.
    """
    seeds, sizes = rows.groupby("seed")[value].mean(), rows.groupby("seed").size()
    mean = f"{_signed(rows[value].mean())} points on average"
    if len(seeds) < 2:
        return f"{mean} (one seed, no interval)"
    if sizes.nunique() > 1:
        return f"{mean} ({len(seeds)} seeds with unlike tasks, no interval)"
    half = half_width(seeds.std(), len(seeds))
    low, high = (_signed(seeds.mean() + sign * half) for sign in (-1, 1))
    return f"{mean} (95 % interval over {len(seeds)} seeds: {low} to {high})"


def as_markdown(sentences: Sequence[str]) -> str:
    """The sentences as a list, for a notebook to display."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _row(table: pd.DataFrame, panel: str, layers: str) -> pd.Series:
    return table[(table["panel"] == panel) & (table["layers"] == layers)].iloc[0]


def _signed(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def _number(value: float, measure: str) -> str:
    return f"{value:.1%}" if measure == "iou" else f"{value:.2f}"
