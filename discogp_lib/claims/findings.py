"""Judges of the paper's findings: composition, overlap, factual recall, ablated values."""

from __future__ import annotations

from itertools import combinations, product

import pandas as pd

from discogp_lib.analysis.likeness import SIMILARITY, similarity_test
from discogp_lib.claims.evidence import BLIMP, FACTS, Evidence
from discogp_lib.claims.verdicts import Judgement, decide, direction, interval, not_run, part
from discogp_lib.similarity import KINDS

FEW_POINTS, WORST = 0.05, 0.2
"""A mean loss up to the first is "largely the same performance", if no pair loses more than the
second, as in the paper; twice as much of both is within tolerance."""
SUBSTANTIALLY = 1.5
"""Times as many, to be substantially more."""


# -- composition -------------------------------------------------------------------------


def _agreement_unions(evidence: Evidence) -> pd.DataFrame | None:
    table = evidence.compositions
    if table is None:
        return None
    chosen = table[table["task"].isin(BLIMP) & table["joined"].isin(BLIMP)]
    return chosen if len(chosen) else None


def _told(table: pd.DataFrame) -> tuple[str, str]:
    """Evidence and coverage."""
    n = len(table[["task", "joined"]].drop_duplicates())
    told = f"{n} ordered pairs of agreement tasks, {table['seed'].nunique()} seed(s)"
    return told, part(n, len(BLIMP) * (len(BLIMP) - 1), "pairs")


def composition_in_range(evidence: Evidence) -> Judgement:
    """Unions of two sheaves are 80 to 100 % accurate."""
    table = _agreement_unions(evidence)
    if table is None:
        return not_run("unions of agreement sheaves (notebook 04)")
    means = table.groupby(["joined", "task"])["composed"].mean().round(9)
    least = " joined to ".join(means.index[int(means.argmin())])
    measured = f"{means.min():.1%} ({least}) to {means.max():.1%}"
    by_seed = table.groupby("seed")["composed"].mean()
    verdict = decide(means.min() >= 0.8, means.min() >= 0.75)
    return Judgement(verdict, measured, *_told(table), "mean accuracy", *interval(by_seed))


def composition_preserves(evidence: Evidence) -> Judgement:
    """Joining another sheaf costs little."""
    table = _agreement_unions(evidence)
    if table is None:
        return not_run("unions of agreement sheaves (notebook 04)")
    changes = table["composed"] - table["original"]
    change = changes.groupby(table["seed"]).mean()
    pairs = changes.groupby([table["joined"], table["task"]]).mean().round(9)
    worst = " joined to ".join(pairs.index[int(pairs.argmin())])
    measured = f"mean change {change.mean():+.1%}, worst {pairs.min():+.1%} ({worst})"
    holds, nearly = (
        change.mean() >= -factor * FEW_POINTS and pairs.min() >= -factor * WORST
        for factor in (1, 2)
    )
    return Judgement(
        decide(holds, nearly), measured, *_told(table), "mean change", *interval(change)
    )


def composition_beats_random(evidence: Evidence) -> Judgement:
    """Another task's sheaf harms less than a random mask of the same size in every part."""
    table = _agreement_unions(evidence)
    if table is None or "matched" not in table:
        return not_run("unions with random masks (notebook 04)")
    lead = (table["composed"] - table["matched"]).groupby(table["seed"]).mean()
    measured = f"composed minus joined with a matched random mask: {lead.mean():+.1%} on average"
    return direction("mean difference", lead, measured, *_told(table))


# -- overlap -----------------------------------------------------------------------------


def _pair(table: pd.DataFrame, kind: str, a: str, b: str) -> pd.Series | None:
    """The overlap of two tasks at the same seed, by seed."""
    rows = table[(table["kind"] == kind) & (table["seed_a"] == table["seed_b"])]
    both = (rows["a"] == a) & (rows["b"] == b) | (rows["a"] == b) & (rows["b"] == a)
    found = rows[both].set_index("seed_a")["iou"]
    return found if len(found) else None


def _pairs(table: pd.DataFrame, kind: str, pairs: list[tuple[str, str]]) -> pd.DataFrame | None:
    """The overlaps of the pairs that were measured, seed by pair."""
    found = [x for a, b in pairs if (x := _pair(table, kind, a, b)) is not None]
    return pd.concat(found, axis=1).dropna() if found else None


DETERMINERS, ANAPHORS = ("DNA", "DNA i", "DNA a", "DNA ia"), ("AGA", "ANA")


def _more_alike(
    evidence: Evidence, kind: str, family: tuple[str, ...], others: tuple[str, ...], sign: int = 1
) -> Judgement:
    """Judge that the pairs of a family overlap more (or, with sign -1, no more) than those with
    others.
    """
    table = evidence.overlaps
    if table is None:
        return not_run("sheaves of two agreement tasks at one seed")
    alike, across = list(combinations(family, 2)), list(product(family, others))
    found = [_pairs(table, kind, pairs) for pairs in (alike, across)]
    near, far = (None if pairs is None else pairs.mean(axis=1) for pairs in found)
    if near is None or far is None:
        return not_run(f"sheaves of {', '.join((*family, *others))}")
    measured = f"{near.mean():.2%} against {far.mean():.2%} of the union of {kind}"
    told = f"sheaves of discogp, {len(near)} seed(s)"
    by_seed = sign * (near - far).dropna()
    n = sum(pairs.shape[1] for pairs in found if pairs is not None)
    coverage = part(n, len(alike) + len(across), "pairs")
    what = "difference" if sign > 0 else "minus the difference"
    return direction(what, by_seed, measured, told, coverage)


def dna_edges_overlap(evidence: Evidence) -> Judgement:
    """The determiner-noun tasks share more edges with each other than with the anaphors."""
    return _more_alike(evidence, "edges", DETERMINERS, ANAPHORS)


def dna_weights_overlap(evidence: Evidence) -> Judgement:
    """And more weights."""
    return _more_alike(evidence, "weights", DETERMINERS, ANAPHORS)


def anaphor_edges_overlap(evidence: Evidence) -> Judgement:
    """ANA and AGA share more edges with each other than with DNA."""
    return _more_alike(evidence, "edges", ANAPHORS, ("DNA",))


def anaphor_weights_do_not_overlap(evidence: Evidence) -> Judgement:
    """But not more weights."""
    return _more_alike(evidence, "weights", ANAPHORS, ("DNA",), sign=-1)


def similar_overlap_against_chance(evidence: Evidence) -> Judgement:
    """Relative to chance, similar tasks share more than different ones; edges and weights."""
    table = evidence.overlaps
    if table is None or "ratio" not in table:
        return not_run("sheaves of several agreement tasks")
    classes = [SIMILARITY[name] for name in {*table["a"], *table["b"]}]
    if len(set(classes)) < 2 or len(set(classes)) == len(classes):
        return not_run("sheaves of similar and of different agreement tasks")
    between = table[table["a"] != table["b"]]
    means = between.groupby(["a", "b", "kind"], sort=False)["ratio"].mean().reset_index()
    tests = {kind: similarity_test(means, kind=kind) for kind in ("edges", "weights")}
    told = "; ".join(
        f"{kind} {t.within:.1f} times chance within a class, {t.between:.1f} between, p = {t.p:.2f}"
        for kind, t in tests.items()
    )
    holds = all(t.difference > 0 and t.p <= max(0.05, t.least_p) for t in tests.values())
    nearly = all(t.difference > 0 for t in tests.values())
    told_by = f"sheaves of discogp, {table['seed_a'].nunique()} seed(s), permutations"
    return Judgement(decide(holds, nearly), told, told_by, part(len(classes), len(BLIMP), "tasks"))


def seeds_overlap_more_than_tasks(evidence: Evidence) -> Judgement:
    """Two seeds of one task share more than two tasks at two seeds do, relative to chance."""
    table = evidence.overlaps
    if table is None or "ratio" not in table:
        return not_run("sheaves of several seeds of several agreement tasks")
    apart = table[table["seed_a"] != table["seed_b"]]
    alike = apart["a"] == apart["b"]
    if not alike.any() or alike.all():
        return not_run("sheaves of several seeds of several agreement tasks")
    means = {
        kind: [
            float(apart["ratio"][rows & (apart["kind"] == kind)].mean()) for rows in (alike, ~alike)
        ]
        for kind in ("edges", "weights")
    }
    told = "; ".join(
        f"{kind}: {same:.1f} times chance for two seeds of one task, {other:.1f} for two tasks"
        for kind, (same, other) in means.items()
    )
    verdict = decide(all(same > other for same, other in means.values()))
    n = int(alike.sum()) // 2
    pairs = f"{n} pairs of one task, {len(apart) // 2 - n} of two tasks"
    coverage = part(apart["a"][alike].nunique(), len(BLIMP), "tasks")
    return Judgement(verdict, told, pairs, coverage)


# -- factual recall ----------------------------------------------------------------------


def _sums(
    evidence: Evidence, panel: str, half: str | None = None, value: str = "kept"
) -> pd.DataFrame | None:
    """Mean over relations of a panel's sums over layers, seed by series.

    half: lower or upper layers only; value: kept or available.
    """
    table = evidence.recall
    if table is None:
        return None
    rows = table[table["panel"] == panel]
    middle = (rows["layer"].max() + 1) / 2
    if half is not None:
        rows = rows[rows["layer"] < middle if half == "lower" else rows["layer"] >= middle]
    sums = rows.groupby(["seed", "relation", "series"])[value].sum().unstack("series")
    return sums.groupby("seed").mean()


def _relations(evidence: Evidence) -> tuple[str, str]:
    """Evidence and coverage."""
    table = evidence.recall
    assert table is not None
    n = table["relation"].nunique()
    told = f"sheaves of {n} relation(s), {table['seed'].nunique()} seed(s)"
    return told, part(n, len(FACTS), "relations")


def mlp_keeps_more_weights(evidence: Evidence) -> Judgement:
    """MLPs keep substantially more weights than attention."""
    sums = _sums(evidence, "weights")
    if sums is None:
        return not_run("sheaves of relations")
    ratio = sums["MLP"] / sums["attention"]
    measured = f"MLPs keep {ratio.mean():.2f} times as many weights as attention"
    verdict = decide(ratio.mean() >= SUBSTANTIALLY, ratio.mean() > 1)
    return Judgement(verdict, measured, *_relations(evidence), "ratio", *interval(ratio))


def mlp_keeps_larger_share(evidence: Evidence) -> Judgement:
    """The same as a share of the weights that there are."""
    kept, there = _sums(evidence, "weights"), _sums(evidence, "weights", value="available")
    if kept is None or there is None:
        return not_run("sheaves of relations")
    share = kept / there
    told = {name: f"{share[name].mean():.2%} of {name} weights" for name in share}
    measured = f"kept: {told['MLP']}, {told['attention']}"
    lead = share["MLP"] - share["attention"]
    return direction("difference of the shares", lead, measured, *_relations(evidence))


def mlp_dominates_low_layers(evidence: Evidence) -> Judgement:
    """The MLPs' surplus of weights is larger in the lower layers than in the upper ones."""
    low, high = (_sums(evidence, "weights", half) for half in ("lower", "upper"))
    if low is None or high is None:
        return not_run("sheaves of relations")
    surplus = [half["MLP"] - half["attention"] for half in (low, high)]
    measured = (
        f"MLP minus attention weights: {surplus[0].mean():,.0f} in the lower half of the "
        f"layers, {surplus[1].mean():,.0f} in the upper"
    )
    lead = surplus[0] - surplus[1]
    return direction("difference of the surpluses", lead, measured, *_relations(evidence))


def upper_edges_into_attention(evidence: Evidence) -> Judgement:
    """In the upper layers more edges run from MLPs to heads than from heads to MLPs."""
    sums = _sums(evidence, "edges", "upper")
    if sums is None:
        return not_run("sheaves of relations")
    share = sums["MLP to attention"] / sums.sum(axis=1)
    measured = f"{share.mean():.0%} of these edges in the upper half run from MLPs to attention"
    return direction("share above one half", share - 0.5, measured, *_relations(evidence))


def upper_edges_beyond_available(evidence: Evidence) -> Judgement:
    """The same, relative to how many of each there are."""
    kept, there = (_sums(evidence, "edges", "upper", value) for value in ("kept", "available"))
    if kept is None or there is None:
        return not_run("sheaves of relations")
    share = kept / there
    told = ", ".join(f"{share[name].mean():.2%} of those {name}" for name in share)
    lead = share["MLP to attention"] - share["attention to MLP"]
    measured = f"kept in the upper half: {told}"
    return direction("difference of the shares", lead, measured, *_relations(evidence))


# -- what ablations leave ----------------------------------------------------------------


def _kinds(table: pd.DataFrame) -> tuple[str, str]:
    """Evidence and coverage."""
    told = f"{len(table)} kind(s) of task, table of cosines"
    return told, part(len(table), len(KINDS), "kinds of task")


def ablated_values_stay_similar(evidence: Evidence) -> Judgement:
    """Mean and interchange values are more like the clean ones than values of random prompts."""
    table = evidence.cosines
    if table is None:
        return not_run("cosines of clean and ablated values (notebook 07)")
    lead = table[["mean", "interchange"]].min(axis=1) - table["random"]
    told = ", ".join(f"{name} {table[name].mean():.2f}" for name in table)
    verdict = decide(lead.min() > 0, lead.mean() > 0)
    return Judgement(verdict, f"mean cosine: {told}", *_kinds(table))


def interchange_is_most_similar(evidence: Evidence) -> Judgement:
    """Interchange values are nearer to the clean ones than means are."""
    table = evidence.cosines
    if table is None:
        return not_run("cosines of clean and ablated values (notebook 07)")
    lead = table["interchange"] - table["mean"]
    told = ", ".join(f"{name} {value:+.3f}" for name, value in lead.items())
    verdict = decide(lead.min() > 0, lead.mean() > 0)
    return Judgement(verdict, f"interchange minus mean: {told}", *_kinds(table))


JUDGES = (
    composition_in_range,
    composition_preserves,
    composition_beats_random,
    dna_edges_overlap,
    dna_weights_overlap,
    anaphor_edges_overlap,
    anaphor_weights_do_not_overlap,
    similar_overlap_against_chance,
    seeds_overlap_more_than_tasks,
    mlp_keeps_more_weights,
    mlp_keeps_larger_share,
    mlp_dominates_low_layers,
    upper_edges_into_attention,
    upper_edges_beyond_available,
    ablated_values_stay_similar,
    interchange_is_most_similar,
)
