"""Judges of controls that the paper lacks and that its claims should stand."""

from __future__ import annotations

from discogp_lib.claims.evidence import Evidence
from discogp_lib.claims.measures import POINTS, near_chance, per_task, values
from discogp_lib.claims.verdicts import Judgement, decide, not_run

WORSE, HARDLY_WORSE = 0.2, 0.1
"""Points of accuracy by which a search that should fail is behind, and within tolerance."""


def random_masks_fail(evidence: Evidence) -> Judgement:
    """Random masks of DiscoGP's size guess, or give no answer: a tie is none."""
    return near_chance(evidence, "balanced_accuracy", ("random",), or_below=True)


def matched_random_masks_fail(evidence: Evidence) -> Judgement:
    """And so do random masks of its size in every part of the model."""
    return near_chance(evidence, "balanced_accuracy", ("random_matched",), or_below=True)


def _variant_is_worse(evidence: Evidence, variant: str, what: str) -> Judgement:
    """Judge that a variant of DiscoGP is less accurate than DiscoGP itself."""
    found = values(evidence, "accuracy", ("discogp", variant))
    if found is None:
        return not_run(f"runs of discogp and {variant} on the same task and seed")
    lead = per_task(found.wide["discogp"] - found.wide[variant]).round(9)
    told = ", ".join(f"{task} {value:+.1%}" for task, value in lead.items())
    verdict = decide(lead.min() >= WORSE, lead.min() >= HARDLY_WORSE)
    return Judgement(verdict, f"{what}: {told}", found.told, found.coverage)


def shuffled_labels_fail(evidence: Evidence) -> Judgement:
    """A search on shuffled labels finds nothing that answers them."""
    what = "accuracy above that with shuffled labels"
    return _variant_is_worse(evidence, "discogp@shuffled", what)


def untrained_model_fails(evidence: Evidence) -> Judgement:
    """A search in an untrained copy of the model finds nothing that does the task."""
    what = "accuracy above that in an untrained model"
    return _variant_is_worse(evidence, "discogp@untrained", what)


def completeness_helps(evidence: Evidence) -> Judgement:
    """The completeness loss brings the complement nearer to chance."""
    methods = ("discogp@incomplete", "discogp")
    found = values(evidence, "complement_balanced_accuracy", methods)
    if found is None or not set(found.wide.index.get_level_values(0)) <= set(evidence.chance):
        return not_run("runs of discogp and discogp@incomplete")
    chance = found.wide.index.get_level_values("short_name").map(evidence.chance)
    away = found.wide.sub(chance.to_numpy(), axis=0).abs().groupby("short_name").mean()
    without, with_loss = (away[method] for method in methods)
    told = ", ".join(f"{t} {without[t]:.1%} against {with_loss[t]:.1%}" for t in away.index)
    holds, nearly = (without >= with_loss).all(), without.mean() >= with_loss.mean()
    measured = f"distance from chance without and with it: {told}"
    return Judgement(decide(bool(holds), bool(nearly)), measured, found.told, found.coverage)


def joint_beats_sequential(evidence: Evidence) -> Judgement:
    """One objective: no less accurate and no denser than weights first, then edges."""
    methods = ("discogp", "discogp@sequential")
    columns = ("accuracy", "weight_density", "edge_density")
    found = {column: values(evidence, column, methods) for column in columns}
    accuracy = found["accuracy"]
    if accuracy is None:
        return not_run("runs of discogp and discogp@sequential on the same task and seed")
    lead = {
        column: per_task(v.wide[methods[0]] - v.wide[methods[1]])
        for column, v in found.items()
        if v is not None
    }
    sparser = (lead["weight_density"] <= 0) & (lead["edge_density"] <= 0)
    holds = (lead["accuracy"] >= -POINTS) & sparser
    told = ", ".join(f"{name.replace('_', ' ')} {x.mean():+.2%}" for name, x in lead.items())
    measured = f"joint minus sequential, mean of {len(holds)} task(s): {told}"
    return Judgement(
        decide(bool(holds.all()), bool(holds.mean() > 0.5)),
        measured,
        accuracy.told,
        accuracy.coverage,
    )


def posthoc_removes(evidence: Evidence) -> Judgement:
    """Post-hoc pruning makes sheaves smaller."""
    pairs = [
        (values(evidence, column, ("discogp",)), values(evidence, f"raw_{column}", ("discogp",)))
        for column in ("weight_density", "edge_density")
    ]
    saved = [
        1 - after.wide["discogp"] / before.wide["discogp"]
        for after, before in pairs
        if after is not None and before is not None
    ]
    if len(saved) < 2 or pairs[0][0] is None:
        return not_run("runs of discogp with their densities before post-hoc pruning")
    measured = f"removes {saved[0].mean():.0%} of the weights, {saved[1].mean():.0%} of the edges"
    holds = min(s.min() for s in saved) >= 0 and min(s.mean() for s in saved) > 0
    return Judgement(decide(bool(holds)), measured, pairs[0][0].told, pairs[0][0].coverage)


JUDGES = (
    random_masks_fail,
    matched_random_masks_fail,
    shuffled_labels_fail,
    untrained_model_fails,
    completeness_helps,
    joint_beats_sequential,
    posthoc_removes,
)
