"""A claim is judged by its rule, on evidence only."""

import pandas as pd
import pytest

from discogp_lib import claims
from discogp_lib.claims.evidence import FACTS, PAIRS, Evidence, PaperEvidence
from discogp_lib.claims.judges import JUDGES, ON_THE_TEXT, UNMEASURED, judge
from discogp_lib.claims.verdicts import Verdict
from discogp_lib.profiles import PAPER_METHODS


def test_every_claim_has_its_judge_and_every_judge_its_claim() -> None:
    names = [claim.id for claim in claims.claims()]
    assert len(names) == len(set(names)) == len({claim.claim for claim in claims.claims()})
    used = {claim.judge for claim in claims.claims()}
    assert used - {ON_THE_TEXT, UNMEASURED} == set(JUDGES)
    for claim in claims.claims():
        if claim.judge in (ON_THE_TEXT, UNMEASURED):
            assert claim.inconsistencies
        assert claim.rule.strip()


class Told(Evidence):
    """Evidence that is made up."""

    name, model = "made up", "mini"
    chance = {**dict.fromkeys(PAIRS, 0.5), **dict.fromkeys(FACTS, 0.1)}  # noqa: RUF012
    compositions = overlaps = cosines = recall = None
    records = pd.DataFrame(columns=["short_name", "method", "seed"])

    def __init__(self, **frames: pd.DataFrame) -> None:
        for name, frame in frames.items():
            setattr(self, name, frame)


def records(column: str, values: dict[str, dict[str, float]], seeds: int = 2) -> Told:
    """values: by method and task; every seed has the same."""
    rows = [
        {"short_name": task, "method": method, "seed": seed, column: value}
        for method, tasks in values.items()
        for task, value in tasks.items()
        for seed in range(seeds)
    ]
    return Told(records=pd.DataFrame(rows))


def rivals(ours: float, theirs: float) -> dict[str, dict[str, float]]:
    others = {method: {"AGA": 0.5, "IOI": 0.5} for method in PAPER_METHODS}
    return others | {"discogp": {"AGA": 0.9, "IOI": ours}, "eap": {"AGA": 0.8, "IOI": theirs}}


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (0.95, 0.95, Verdict.REPRODUCED),
        (0.94, 0.95, Verdict.WITHIN_TOLERANCE),
        (0.92, 0.95, Verdict.NOT_REPRODUCED),
    ],
)
def test_beating_every_baseline(ours: float, theirs: float, verdict: Verdict) -> None:
    found = JUDGES["best_accuracy"](records("accuracy", rivals(ours, theirs)))
    assert found.verdict == verdict
    assert found.value == pytest.approx((0.1 + ours - theirs) / 2)
    assert found.low == found.high == pytest.approx(found.value)
    assert found.coverage == "2 of 19 tasks"


def test_a_baseline_that_was_not_run_on_the_task_gives_no_verdict() -> None:
    values = rivals(0.95, 0.9)
    values["acdc"] = {"P36": 0.1}
    found = JUDGES["best_accuracy"](records("accuracy", values))
    assert found.verdict == Verdict.NOT_RUN
    assert found.value is None


def test_one_baseline_on_one_task_refutes_that_it_is_ahead_of_all() -> None:
    values = rivals(0.85, 0.9)
    values["acdc"] = {}
    found = JUDGES["best_accuracy"](records("accuracy", values))
    assert found.verdict == Verdict.NOT_REPRODUCED
    assert "ahead or level on 1 of 2 tasks" in found.measured
    assert "smallest -5.0% (IOI)" in found.measured


def test_seeds_with_fewer_rivals_do_not_count() -> None:
    told = runs_of(
        """
        discogp AGA 0 accuracy=0.8
        discogp AGA 1 accuracy=0.8
        weight_pruning AGA 0 accuracy=0.9
        eap AGA 0 accuracy=0.1
        eap AGA 1 accuracy=0.1
        """
    )
    found = JUDGES["best_accuracy"](told)
    assert found.verdict == Verdict.NOT_REPRODUCED
    assert found.value == pytest.approx(-0.1)


def test_seeds_with_unlike_tasks_give_no_interval() -> None:
    told = runs_of(
        """
        discogp AGA 0 kept_accuracy=0.9
        discogp IOI 0 kept_accuracy=1
        discogp IOI 1 kept_accuracy=0.8
        """
    )
    found = JUDGES["keeps_performance"](told)
    assert found.value == pytest.approx(0.9)  # of tasks, not of runs
    assert found.low is found.high is None


def test_lower_is_better_for_divergence_and_density() -> None:
    values = rivals(0.2, 0.1)
    assert JUDGES["lowest_kl"](records("kl", values)).verdict == Verdict.NOT_REPRODUCED
    sparse = {"discogp": {"AGA": 0.01}, "weight_pruning": {"AGA": 0.02}}
    found = JUDGES["fewest_weights"](records("weight_density", sparse))
    assert (found.verdict, found.value) == (Verdict.REPRODUCED, pytest.approx(0.5))


@pytest.mark.parametrize(
    ("complement", "verdict"),
    [
        ({"AGA": 0.41, "P36": 0.19}, Verdict.REPRODUCED),
        ({"AGA": 0.38, "P36": 0.1}, Verdict.WITHIN_TOLERANCE),
        ({"AGA": 0.5, "P36": 0.5}, Verdict.NOT_REPRODUCED),
    ],
)
def test_near_chance_means_the_task_s_own_chance(
    complement: dict[str, float], verdict: Verdict
) -> None:
    told = records("complement_balanced_accuracy", {"discogp": complement})
    assert JUDGES["complement_near_chance"](told).verdict == verdict


def test_seeds_on_either_side_of_chance_are_not_near_it() -> None:
    told = runs_of(
        """
        discogp AGA 0 complement_balanced_accuracy=0.7
        discogp AGA 1 complement_balanced_accuracy=0.3
        eap AGA 0 complement_balanced_accuracy=0.5
        random AGA 0 complement_balanced_accuracy=0.9
        """
    )
    found = JUDGES["complement_near_chance"](told)
    assert found.verdict == Verdict.NOT_REPRODUCED
    assert found.measured.endswith(
        "what others leave, eap: within 10 points of chance on 1 of 1 tasks, "
        "random: within 10 points of chance on 0 of 1 tasks"
    )


def test_a_task_without_known_chance_is_left_out() -> None:
    told = records("complement_balanced_accuracy", {"discogp": {"P36": 0.9}})
    told.chance = {"AGA": 0.5}
    assert JUDGES["complement_near_chance"](told).verdict == Verdict.NOT_RUN


def runs_of(text: str) -> Told:
    """Evidence from lines such as "discogp AGA 0 accuracy=0.9 edge_density=0.02"."""
    rows = []
    for line in text.strip().splitlines():
        method, task, seed, *values = line.split()
        named = {name: float(value) for name, _, value in (v.partition("=") for v in values)}
        rows.append({"method": method, "short_name": task, "seed": int(seed), **named})
    return Told(records=pd.DataFrame(rows))


JOINT = """
discogp AGA 0 accuracy=0.95 weight_density={w} edge_density=0.02
weight_pruning AGA 0 accuracy=0.95 weight_density=0.03 edge_density=1
edge_pruning AGA 0 accuracy=0.9 weight_density=1 edge_density=0.03
"""
GREEDY = """
discogp AGA 0 accuracy=0.9 edge_density=0.02
discogp P36 0 accuracy=0.9 edge_density=0.02
acdc AGA 0 accuracy=0.9 edge_density=0.02 kept_accuracy=0.95 balanced_accuracy=0.9
acdc P36 0 accuracy={acdc} edge_density=0.02 kept_accuracy={acdc} balanced_accuracy={acdc}
eap AGA 0 accuracy=0.9 edge_density=0.02 kept_accuracy=0.95 balanced_accuracy=0.9
eap P36 0 accuracy={eap} edge_density=0.02 kept_accuracy={eap} balanced_accuracy={eap}
"""
ONE_TASK_MORE = """\
discogp AGA 1 accuracy=0.9
acdc AGA 1 accuracy=0.8
eap AGA 1 accuracy=0.2
"""
GAPS = """
discogp AGA 0 accuracy=0.95 train_accuracy=0.96
discogp P36 0 accuracy=0.9 train_accuracy={train}
"""
SEQUENTIAL = """
discogp IOI 0 accuracy=0.95 weight_density=0.02 edge_density=0.02
discogp@sequential IOI 0 accuracy=0.96 weight_density={w} edge_density=0.03
"""
INCOMPLETE = """
discogp IOI 0 complement_balanced_accuracy={with_loss}
discogp@incomplete IOI 0 complement_balanced_accuracy=0.4
"""
DENSITIES = "discogp IOI 0 weight_density={w} edge_density=0.02 raw_weight_density=0.03 {raw}"
MEAN = "discogp@mean IOI 0 accuracy={ours} kept_accuracy={ours}\nacdc@mean IOI 0 accuracy=0.9"
SHUFFLED = "discogp IOI 0 accuracy=1\ndiscogp@shuffled IOI 0 accuracy={x}"
YES, NEARLY, NO = Verdict.REPRODUCED, Verdict.WITHIN_TOLERANCE, Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("name", "text", "verdict"),
    [
        ("joint_beats_single", JOINT.format(w=0.02), YES),
        ("joint_beats_single", JOINT.format(w=0.032), NEARLY),
        ("joint_beats_single", JOINT.format(w=0.04), NO),
        ("small", "discogp IOI 0 weight_density=0.01 edge_density=0.07", YES),
        ("small", "discogp IOI 0 weight_density=0.01 edge_density=0.08", NO),
        ("keeps_performance", "discogp IOI 0 kept_accuracy=0.93", YES),
        ("keeps_performance", "discogp IOI 0 kept_accuracy=0.92", NEARLY),
        ("greedy_fails_on_facts", GREEDY.format(acdc=0.1, eap=0.15), YES),
        ("greedy_fails_on_facts", GREEDY.format(acdc=0.1, eap=0.9), NO),
        ("greedy_less_stable", GREEDY.format(acdc=0.1, eap=0.2), YES),
        ("greedy_less_stable", GREEDY.format(acdc=0.1, eap=0.9), NO),
        ("greedy_less_stable", GREEDY.format(acdc=0.1, eap=0.2) + ONE_TASK_MORE, YES),
        ("greedy_not_self_contained", GREEDY.format(acdc=0.8, eap=1.0), YES),
        ("greedy_not_self_contained", GREEDY.format(acdc=0.9, eap=1.0), NO),
        ("beats_greedy_with_larger_budget", GREEDY.format(acdc=0.9, eap=0.9), YES),
        ("beats_greedy_with_larger_budget", GREEDY.format(acdc=0.9, eap=0.95), NO),
        ("facts_generalise_less", GAPS.format(train=1.0), YES),
        ("facts_generalise_less", GAPS.format(train=0.9), NO),
        ("mean_ablation_beats_acdc", MEAN.format(ours=0.95), YES),
        ("mean_ablation_beats_acdc", MEAN.format(ours=0.89), NEARLY),
        ("mean_ablation_keeps_performance", MEAN.format(ours=0.8), NO),
        ("shuffled_labels_fail", SHUFFLED.format(x=0.5), YES),
        ("shuffled_labels_fail", SHUFFLED.format(x=0.9), NEARLY),
        ("shuffled_labels_fail", SHUFFLED.format(x=0.95), NO),
        ("completeness_helps", INCOMPLETE.format(with_loss=0.55), YES),
        ("completeness_helps", INCOMPLETE.format(with_loss=0.65), NO),
        ("joint_beats_sequential", SEQUENTIAL.format(w=0.02), YES),
        ("joint_beats_sequential", SEQUENTIAL.format(w=0.01), NO),
        ("posthoc_removes", DENSITIES.format(w=0.02, raw="raw_edge_density=0.03"), YES),
        ("posthoc_removes", DENSITIES.format(w=0.02, raw="raw_edge_density=0.01"), NO),
        ("posthoc_removes", DENSITIES.format(w=0.02, raw=""), Verdict.NOT_RUN),
        ("random_masks_fail", "random AGA 0 balanced_accuracy=0.55", YES),
        ("random_masks_fail", "random AGA 0 balanced_accuracy=0.0", YES),
        ("matched_random_masks_fail", "random_matched AGA 0 balanced_accuracy=0.7", NO),
        ("untrained_model_fails", SHUFFLED.format(x=0.5), Verdict.NOT_RUN),
    ],
)
def test_judges_of_runs(name: str, text: str, verdict: Verdict) -> None:
    assert JUDGES[name](runs_of(text)).verdict == verdict


@pytest.mark.parametrize(
    ("lowest", "verdict"),
    [
        (0.80, Verdict.REPRODUCED),
        (0.76, Verdict.WITHIN_TOLERANCE),
        (0.70, Verdict.NOT_REPRODUCED),
    ],
)
def test_composition(lowest: float, verdict: Verdict) -> None:
    rows = [("AGA", "ANA", 0, lowest, 1.0), ("ANA", "AGA", 0, 1.0, 1.0), ("IOI", "AGA", 0, 0.1, 1)]
    columns = ["task", "joined", "seed", "composed", "original"]
    told = Told(compositions=pd.DataFrame(rows, columns=columns))
    assert JUDGES["composition_in_range"](told).verdict == verdict


@pytest.mark.parametrize(
    ("worst", "verdict"),
    [(0.85, YES), (0.7, NEARLY), (0.5, NO)],
)
def test_a_union_that_loses_one_task_is_not_made_up_for_by_others(
    worst: float, verdict: Verdict
) -> None:
    rows = [("AGA", "ANA", 0, worst, 1.0)] + [("ANA", "AGA", 0, 1.0, 1.0)] * 15
    columns = ["task", "joined", "seed", "composed", "original"]
    told = Told(compositions=pd.DataFrame(rows, columns=columns))
    assert JUDGES["composition_preserves"](told).verdict == verdict


def test_all_pairs_of_a_family_count() -> None:
    values = {("DNA", "DNA i"): 0.1, ("DNA i", "DNA a"): 0.5, ("DNA a", "AGA"): 0.2}
    rows = [
        {"a": a, "b": b, "kind": "edges", "seed_a": 0, "seed_b": 0, "iou": value}
        for (a, b), value in values.items()
    ]
    found = JUDGES["dna_edges_overlap"](Told(overlaps=pd.DataFrame(rows)))
    assert found.measured.startswith("30.00% against 20.00%")
    assert found.coverage == "3 of 14 pairs"


def overlaps(near: list[float], far: list[float]) -> Told:
    rows = [
        {"a": a, "b": b, "kind": kind, "seed_a": seed, "seed_b": seed, "iou": value}
        for seed, pair in enumerate(zip(near, far, strict=True))
        for (a, b), value in zip((("ANA", "AGA"), ("AGA", "DNA")), pair, strict=True)
        for kind in ("edges", "weights")
    ]
    return Told(overlaps=pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("near", "verdict", "reverse"),
    [
        ([0.3, 0.3], Verdict.REPRODUCED, Verdict.NOT_REPRODUCED),
        ([0.5, 0.19], Verdict.WITHIN_TOLERANCE, Verdict.NOT_REPRODUCED),
        ([0.1, 0.1], Verdict.NOT_REPRODUCED, Verdict.REPRODUCED),
    ],
)
def test_overlap_of_similar_tasks(near: list[float], verdict: Verdict, reverse: Verdict) -> None:
    told = overlaps(near, [0.2, 0.2])
    assert JUDGES["anaphor_edges_overlap"](told).verdict == verdict
    assert JUDGES["anaphor_weights_do_not_overlap"](told).verdict == reverse
    assert JUDGES["dna_edges_overlap"](told).verdict == Verdict.NOT_RUN


def recall(kept: dict[str, list[int]], available: dict[str, list[int]]) -> Told:
    rows = [
        {
            "panel": "weights" if series in ("MLP", "attention") else "edges",
            "series": series,
            "layer": layer,
            "kept": value,
            "available": available[series][layer],
            "relation": "P36",
            "seed": 0,
        }
        for series, values in kept.items()
        for layer, value in enumerate(values)
    ]
    return Told(recall=pd.DataFrame(rows))


def test_factual_recall_by_counts_and_by_shares() -> None:
    available = {"MLP": [100, 100], "attention": [40, 40]}
    available |= {"MLP to attention": [0, 30], "attention to MLP": [5, 10]}
    kept = {"MLP": [30, 10], "attention": [12, 8]}
    kept |= {"MLP to attention": [0, 6], "attention to MLP": [2, 5]}
    told = recall(kept, available)
    verdicts = {
        "mlp_keeps_more_weights": Verdict.REPRODUCED,  # 40 to 20
        "mlp_keeps_larger_share": Verdict.NOT_REPRODUCED,  # 20 % to 25 %
        "mlp_dominates_low_layers": Verdict.REPRODUCED,  # 18 to 2
        "upper_edges_into_attention": Verdict.REPRODUCED,  # 6 to 5
        "upper_edges_beyond_available": Verdict.NOT_REPRODUCED,  # 20 % to 50 %
    }
    assert {name: JUDGES[name](told).verdict for name in verdicts} == verdicts


def test_the_full_model_is_judged_for_gpt2_only() -> None:
    told = records("full_accuracy", {"discogp": {"AGA": 0.99}})
    assert JUDGES["full_model_is_near_perfect"](told).verdict == Verdict.OTHER_MODEL
    told.model = "gpt2"
    assert JUDGES["full_model_is_near_perfect"](told).verdict == Verdict.REPRODUCED


def test_without_evidence_there_is_no_verdict() -> None:
    table = claims.claims_table(Told())
    by_text = [claim.judge == ON_THE_TEXT for claim in claims.claims()]
    assert (table["verdict"][by_text] == Verdict.INCONSISTENT).all()
    rest = table[[not text for text in by_text]]
    assert (rest["verdict"] == Verdict.NOT_RUN).all()
    assert rest["evidence"].str.startswith("missing: ").all()
    assert rest["value"].isna().all()


def test_the_paper_s_own_tables_are_judged_by_the_same_rules() -> None:
    printed = PaperEvidence()
    found = {claim.id: judge(claim, printed).verdict for claim in claims.claims()}
    assert found["best-accuracy"] == Verdict.REPRODUCED
    assert found["composition-range"] == Verdict.REPRODUCED
    assert found["overlap-anaphor-weights"] == Verdict.REPRODUCED
    assert found["ablated-values-similar"] == Verdict.REPRODUCED
    # On test prompts, and relation by relation, the paper's tables do not bear out its abstract.
    assert found["keeps-performance"] == Verdict.NOT_REPRODUCED
    assert found["fewest-weights"] == found["fewest-edges"] == Verdict.NOT_REPRODUCED
    assert found["recall-mlp-weights"] == Verdict.NOT_RUN  # a figure has no numbers
