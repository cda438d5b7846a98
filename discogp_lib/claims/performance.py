"""Judges of what the paper says about its methods: fidelity, sparsity, completeness."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from discogp_lib.claims.evidence import FACTS, PAIRS, Evidence
from discogp_lib.claims.measures import (
    BASELINES,
    EVERY_TASK,
    GREEDY,
    NATS,
    POINTS,
    SHARE,
    ahead,
    lead_over,
    near_chance,
    over_tasks,
    per_seed,
    per_task,
    values,
)
from discogp_lib.claims.verdicts import (
    Judgement,
    Verdict,
    decide,
    direction,
    interval,
    not_run,
    part,
)


def best_accuracy(evidence: Evidence) -> Judgement:
    """Higher accuracy than every baseline on every task."""
    return ahead(evidence, "accuracy", BASELINES, POINTS)


def best_accuracy_on_facts(evidence: Evidence) -> Judgement:
    """The same, relations only."""
    return ahead(evidence, "accuracy", BASELINES, POINTS, FACTS)


def lowest_kl(evidence: Evidence) -> Judgement:
    """Lower KL divergence than every baseline on every task."""
    return ahead(evidence, "kl", BASELINES, NATS)


def fewest_weights(evidence: Evidence) -> Judgement:
    """Fewer weights than weight pruning on every task."""
    return ahead(evidence, "weight_density", ("weight_pruning",), SHARE)


def fewest_edges(evidence: Evidence) -> Judgement:
    """Fewer edges than edge pruning on every task."""
    return ahead(evidence, "edge_density", ("edge_pruning",), SHARE)


def mostly_fewest_on_facts(evidence: Evidence) -> Judgement:
    """Fewer weights and fewer edges on most relations."""
    weights = lead_over(evidence, "weight_density", ("weight_pruning",), FACTS)
    edges = lead_over(evidence, "edge_density", ("edge_pruning",), FACTS)
    if weights is None or edges is None:
        return not_run("runs of discogp, weight_pruning and edge_pruning on relations")
    shares = [float((per_task(lead.by).round(9) >= 0).mean()) for lead in (weights, edges)]
    measured = f"fewer weights on {shares[0]:.0%}, fewer edges on {shares[1]:.0%} of relations"
    return Judgement(
        decide(min(shares) > 0.5, min(shares) == 0.5),
        measured,
        edges.found.told,
        edges.found.coverage,
    )


def joint_beats_single(evidence: Evidence) -> Judgement:
    """Both masks together: no less accurate, fewer weights and fewer edges than one alone."""
    columns = {
        "accuracy": ("weight_pruning", "edge_pruning"),
        "weight_density": ("weight_pruning",),
        "edge_density": ("edge_pruning",),
    }
    leads = {column: lead_over(evidence, column, rivals) for column, rivals in columns.items()}
    by_task = {c: per_task(lead.by).round(9) for c, lead in leads.items() if lead is not None}
    found = pd.DataFrame(by_task).dropna()
    if len(by_task) < 3 or found.empty:
        return not_run("runs of discogp, weight_pruning and edge_pruning")
    holds = (found >= 0).all(axis=1)
    nearly = (found["accuracy"] >= -POINTS) & (found["weight_density"] >= -SHARE)
    nearly &= found["edge_density"] >= -SHARE
    measured = (
        f"all three at once on {int(holds.sum())} of {len(holds)} tasks, within tolerance on "
        f"{int(nearly.sum())}; mean lead {found['accuracy'].mean():+.1%} accuracy, "
        f"{found['weight_density'].mean():.0%} fewer weights, "
        f"{found['edge_density'].mean():.0%} fewer edges"
    )
    methods = "discogp, weight_pruning, edge_pruning"
    verdict = decide(bool(holds.all()), bool(nearly.all()))
    coverage = part(len(holds), len(EVERY_TASK), "tasks")
    return Judgement(verdict, measured, f"runs of {methods}; {len(holds)} task(s)", coverage)


def keeps_performance(evidence: Evidence) -> Judgement:
    """At least 93 % of the full model's accuracy on every task."""
    return _kept(evidence, "discogp", EVERY_TASK)


def mean_ablation_keeps_performance(evidence: Evidence) -> Judgement:
    """The same for searches under mean ablation."""
    return _kept(evidence, "discogp@mean", ("IOI",))


def _kept(evidence: Evidence, method: str, tasks: tuple[str, ...]) -> Judgement:
    found = values(evidence, "kept_accuracy", (method,), tasks)
    if found is None:
        return not_run(f"runs of {method}")
    kept = found.wide[method]
    by_task = per_task(kept).round(9)
    measured = (
        f"{by_task.min():.1%} ({by_task.idxmin()}) to {by_task.max():.1%} of the full model's "
        f"accuracy; at least 93 % on {int((by_task >= 0.93).sum())} of {len(by_task)} tasks"
    )
    verdict = decide(by_task.min() >= 0.93, by_task.min() >= 0.93 - POINTS)
    return Judgement(
        verdict, measured, found.told, found.coverage, "mean share kept", *over_tasks(kept)
    )


def small(evidence: Evidence) -> Judgement:
    """At most 7 % of the weights and of the edges on every task."""
    found = {c: values(evidence, c, ("discogp",)) for c in ("weight_density", "edge_density")}
    weights, edges = found["weight_density"], found["edge_density"]
    if weights is None or edges is None:
        return not_run("runs of discogp")
    w, e = (per_task(v.wide["discogp"]).round(9) for v in (weights, edges))
    largest = max(w.max(), e.max())
    both = int(((w <= 0.07) & (e <= 0.07)).sum())
    measured = (
        f"weights {w.min():.2%} to {w.max():.2%}, edges {e.min():.2%} to {e.max():.2%}; "
        f"both at most 7 % on {both} of {len(w)} tasks"
    )
    verdict = decide(largest <= 0.07, largest <= 0.07 * (1 + SHARE))
    return Judgement(verdict, measured, edges.told, edges.coverage)


def complement_near_chance(evidence: Evidence) -> Judgement:
    """What is left without the sheaf guesses (class-balanced); and what others leave."""
    column = "complement_balanced_accuracy"
    judged = near_chance(evidence, column, ("discogp",))
    others = {m: near_chance(evidence, column, (m,)) for m in ("eap", "random")}
    told = [f"{m}: {j.measured.partition(';')[0]}" for m, j in others.items() if j.measured]
    if not judged.measured or not told:
        return judged
    return replace(judged, measured=f"{judged.measured}; what others leave, {', '.join(told)}")


def greedy_fails_on_facts(evidence: Evidence) -> Judgement:
    """ACDC and EAP are near chance on relations at DiscoGP's budget."""
    return near_chance(evidence, "balanced_accuracy", GREEDY, FACTS)


def beats_greedy_with_larger_budget(evidence: Evidence) -> Judgement:
    """More accurate than ACDC and EAP, although these keep at least as many edges."""
    sizes = values(evidence, "edge_density", ("discogp", *GREEDY))
    if sizes is None:
        return not_run("runs of discogp, acdc and eap")
    wide = sizes.wide
    fair = wide[list(GREEDY)].min(axis=1) >= (1 - SHARE) * wide["discogp"]
    judged = ahead(evidence, "accuracy", GREEDY, POINTS)
    told = f"{judged.measured}; they have at least DiscoGP's edges in {fair.mean():.0%} of runs"
    return replace(judged, measured=told)


def greedy_less_stable(evidence: Evidence) -> Judgement:
    """Accuracies of ACDC and of EAP vary more across tasks than DiscoGP's.

    In the seeds of the most tasks: those of a single task vary across nothing.
    """
    found = values(evidence, "accuracy", ("discogp", *GREEDY))
    if found is None or found.tasks < 2:
        return not_run("runs of discogp, acdc and eap on several tasks")
    tasks = found.wide.groupby("seed")["discogp"].transform("size")
    found = replace(found, wide=found.wide[tasks == tasks.max()])
    spread = found.wide.groupby("seed").std()
    by_seed = spread[list(GREEDY)].min(axis=1) - spread["discogp"]
    told = ", ".join(f"{m} {spread[m].mean():.1%}" for m in found.methods)
    measured = f"standard deviation across tasks: {told}"
    return direction(
        "smaller of the two minus DiscoGP's", by_seed, measured, found.told, found.coverage
    )


def greedy_not_self_contained(evidence: Evidence) -> Judgement:
    """The important edges do not always do the task alone."""
    found = values(evidence, "kept_accuracy", GREEDY)
    if found is None:
        return not_run("runs of acdc and eap")
    kept = found.wide.groupby("short_name").mean()
    fails = (kept < 0.9).any(axis=1)
    measured = f"below 90 % of the full model's accuracy on {fails.sum()} of {len(fails)} tasks"
    return Judgement(decide(bool(fails.any())), measured, found.told, found.coverage)


def facts_generalise_less(evidence: Evidence) -> Judgement:
    """Training and test accuracy part on relations, and less on agreement and IOI."""
    gaps, seen = {}, 0
    for name, tasks in (("relations", FACTS), ("agreement and IOI", PAIRS)):
        train = values(evidence, "train_accuracy", ("discogp",), tasks)
        test = values(evidence, "accuracy", ("discogp",), tasks)
        if train is None or test is None:
            return not_run(f"training accuracy of discogp on {name}")
        gaps[name] = (train.wide - test.wide)["discogp"]
        seen += train.tasks
    by_seed = {name: per_seed(gap) for name, gap in gaps.items()}
    difference = (by_seed["relations"] - by_seed["agreement and IOI"]).dropna()
    if difference.empty:
        return not_run("relations and pairs at the same seed")
    told = ", ".join(f"{per_task(gap).mean():+.1%} on {name}" for name, gap in gaps.items())
    measured = f"training minus test accuracy: {told}"
    coverage = part(seen, len(EVERY_TASK), "tasks")
    return direction("difference of the gaps", difference, measured, "runs of discogp", coverage)


def full_model_is_near_perfect(evidence: Evidence) -> Judgement:
    """The full model answers agreement and IOI nearly always rightly; said of GPT-2."""
    found = values(evidence, "full_accuracy", ("discogp",), PAIRS)
    if found is None:
        return not_run("runs of discogp on agreement and IOI")
    by_task = per_task(found.wide["discogp"])
    measured = f"{by_task.min():.1%} ({by_task.idxmin()}) to {by_task.max():.1%}"
    verdict = decide(by_task.min() >= 0.95, by_task.min() >= 0.9)
    if evidence.model != "gpt2":
        verdict = Verdict.OTHER_MODEL
    return Judgement(verdict, measured, found.told, found.coverage)


def mean_ablation_beats_acdc(evidence: Evidence) -> Judgement:
    """Under mean ablation too DiscoGP is more accurate than ACDC."""
    found = values(evidence, "accuracy", ("discogp@mean", "acdc@mean"), ("IOI",))
    if found is None:
        return not_run("DiscoGP and ACDC under mean ablation on IOI at the same seed")
    lead = per_seed(found.wide["discogp@mean"] - found.wide["acdc@mean"])
    verdict = decide(lead.mean() > 0, lead.mean() >= -POINTS)
    measured = f"lead {lead.mean():+.1%} on IOI"
    return Judgement(verdict, measured, found.told, found.coverage, "lead", *interval(lead))


JUDGES = (
    best_accuracy,
    best_accuracy_on_facts,
    lowest_kl,
    fewest_weights,
    fewest_edges,
    mostly_fewest_on_facts,
    joint_beats_single,
    keeps_performance,
    mean_ablation_keeps_performance,
    small,
    complement_near_chance,
    greedy_fails_on_facts,
    beats_greedy_with_larger_budget,
    greedy_less_stable,
    greedy_not_self_contained,
    facts_generalise_less,
    full_model_is_near_perfect,
    mean_ablation_beats_acdc,
)
