"""The paper is transcribed rightly, contradicts itself where we say, and is judged by evidence."""

from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib import claims, profiles, runs
from discogp_lib.analysis.chance import shared_by_chance
from discogp_lib.analysis.overlap import PAPER_PAIRS
from discogp_lib.claims import evidence as evidence_module
from discogp_lib.claims import paper
from discogp_lib.claims.comparison import compare
from discogp_lib.claims.evidence import BLIMP, FACTS, Evidence, MeasuredEvidence, PaperEvidence
from discogp_lib.claims.judges import JUDGES, ON_THE_TEXT, UNMEASURED, judge
from discogp_lib.claims.verdicts import Interval, Verdict, interval
from discogp_lib.config import SearchConfig
from discogp_lib.graph import Graph
from discogp_lib.profiles import PAPER_METHODS, Profile
from discogp_lib.runs import Run, compute

NUMBERS = paper.numbers()
MAIN, DETAIL = paper.MAIN_TABLE, list(paper.RELATION_TABLES)
GPT2_WEIGHTS, GPT2_EDGES = 85_017_600, 32_491


def cells(table: str | list[str], **where: str) -> pd.DataFrame:
    chosen = NUMBERS[NUMBERS["table"].isin([table] if isinstance(table, str) else table)]
    for column, value in where.items():
        chosen = chosen[chosen[column] == value]
    return chosen


def cell(table: str | list[str], **where: str) -> float:
    return float(cells(table, **where)["value"].item())


def mean_of_relations(row: str, column: str) -> Decimal:
    printed = cells(DETAIL, row=row, column=column)["printed"]
    return sum(map(Decimal, printed), Decimal(0)) / len(printed)


# -- the transcription ---------------------------------------------------------------------


def test_every_table_has_all_its_cells() -> None:
    counts = {
        MAIN: 8 * 5 * 5,
        "table:oqa-full": 9 * 5 * 6,
        "table:oqa-full-2": 3 * 5 * 6,
        "tab:ma": 2 * 5,
        "tab:edge-intervene-sim": 3 * 3,
        "tab:composition": 6 * 5 + 6,
        "tab:overlap": 6 * 4,
        "tab:pararel-relations": 12,
        "text": 18,
    }
    assert NUMBERS["table"].value_counts().to_dict() == counts
    assert not NUMBERS.duplicated(["table", "task", "row", "column"]).any()
    assert (NUMBERS["value"] >= 0).all()


def test_tables_are_about_the_tasks_and_methods_of_the_library() -> None:
    assert list(dict.fromkeys(cells(MAIN)["task"])) == [*BLIMP, "IOI", "PARAREL"]
    assert set(cells(DETAIL)["task"]) == set(cells("tab:pararel-relations")["task"]) == set(FACTS)
    for table in (MAIN, *DETAIL):
        assert set(cells(table)["row"]) == set(PAPER_METHODS)
    pairs = cells("tab:overlap", column="edge_overlap")
    assert tuple(zip(pairs["task"], pairs["row"], strict=True)) == PAPER_PAIRS


def test_percentages_are_percentages_and_one_mask_methods_keep_all_of_the_other() -> None:
    assert (cells(list(set(NUMBERS["table"])), unit="%")["value"] <= 100).all()
    tables = [MAIN, *DETAIL]
    for row, column in (("weight_pruning", "edge_density"), ("edge_pruning", "weight_density")):
        assert set(cells(tables, row=row, column=column)["printed"]) == {"100"}


def test_query_counts_add_up_to_the_total_of_the_text() -> None:
    assert cells("tab:pararel-relations")["value"].sum() == cell("text", column="queries") == 9543
    assert len(cells("tab:pararel-relations")) == cell("text", column="relations_used")


def test_main_table_averages_the_relations_but_where_it_is_said_not_to() -> None:
    checked = 0
    for row in cells(MAIN, task="PARAREL").to_dict("records"):
        column = "train_accuracy" if row["column"] == "accuracy" else row["column"]
        mean, printed = mean_of_relations(row["row"], column), Decimal(row["printed"])
        rounded = mean.quantize(printed, rounding=ROUND_HALF_UP)
        assert (printed == rounded) != bool(row["inconsistent"]), row
        checked += 1
    assert checked == 25


def test_composition_spans_what_the_text_says() -> None:
    composed = cells("tab:composition")
    composed = composed[composed["row"] != "original"]["value"]
    assert cell("text", column="composition_lowest") <= composed.min() < 81
    assert composed.max() == cell("text", column="composition_highest")


def test_bold_is_best_but_where_it_is_said_not_to() -> None:
    table = paper.inconsistencies()
    odd = {
        (row["id"], row["task"], column)
        for row in table[table["concerns"] == "bold"].to_dict("records")
        for column in row["column"].split("|")
    }
    found = set()
    for (task, column), group in cells([MAIN, *DETAIL]).groupby(["task", "column"]):
        bold, best = group["row"][group["bold"]].tolist(), group["value"].min()
        if column == "complement_accuracy":
            assert not bold
            continue
        best = group["value"].max() if "accuracy" in column else best
        if not bold:
            found.add(("best-not-bold", task, column))
        elif group["value"][group["bold"]].item() != best:
            found.add(("bold-not-best", task, column))
    assert found == odd


# -- where the paper contradicts itself ------------------------------------------------------


def swapped() -> bool:
    means = {m: mean_of_relations(m, "complement_accuracy") for m in PAPER_METHODS}
    edge, weight = means["edge_pruning"], means["weight_pruning"]
    one = Decimal("0.1")
    told = {m: cell(MAIN, task="PARAREL", row=m, column="complement_accuracy") for m in means}
    as_printed = (told["edge_pruning"], told["weight_pruning"])
    return (float(weight.quantize(one)), float(edge.quantize(one))) == as_printed


def truncated() -> bool:
    found = []
    for row, column in (
        ("edge_pruning", "accuracy"),
        ("weight_pruning", "accuracy"),
        ("acdc", "kl"),
        ("discogp", "kl"),
    ):
        printed = Decimal(cells(MAIN, task="PARAREL", row=row, column=column)["printed"].item())
        detail = "train_accuracy" if column == "accuracy" else column
        cut = mean_of_relations(row, detail).quantize(printed, rounding=ROUND_FLOOR)
        found.append(cut == printed)
    return all(found)


def training_accuracy() -> bool:
    test, train = (mean_of_relations("discogp", f"{s}_accuracy") for s in ("test", "train"))
    lowest = cell("text", column="accuracy_lowest")
    return round(test, 1) == Decimal("77.6") and test < lowest < train < lowest + 1


def behind(column: str, tables: list[str]) -> set[str]:
    wide = cells(tables, column=column).pivot(index="task", columns="row", values="value")
    if "accuracy" in column:
        return set(wide.index[wide["discogp"] < wide.max(axis=1)])
    return set(wide.index[wide["discogp"] > wide.min(axis=1)])


def not_best_everywhere() -> bool:
    weights, edges = ({"P103", "P159", "P407", "P1376"}, {"P30", "P103", "P159", "P407", "P449"})
    return (
        behind("train_accuracy", DETAIL) == {"P138", "P264"}
        and behind("kl", DETAIL) == {"P138", "P176", "P449"}
        and behind("weight_density", DETAIL) == weights
        and behind("edge_density", DETAIL) == edges
        and not any(behind(c, [MAIN]) for c in ("accuracy", "kl", "weight_density"))
    )


def ties_in_bold() -> bool:
    tied = set()
    for (task, column), group in cells([MAIN, *DETAIL]).groupby(["task", "column"]):
        best = group[group["value"] == group["value"].max()]
        if column in ("accuracy", "train_accuracy") and len(best) > 1:
            assert best["row"][best["bold"]].tolist() == ["discogp"]
            tied.add(task)
    return tied == {"DNA", "IOI", "P30", "P449"}


def spliced() -> bool:
    mine = cells("tab:ma", row="acdc@mean").set_index("column")["value"]
    rows = {t: cells(MAIN, task=t, row="acdc").set_index("column")["value"] for t in NAMES}
    ioi, dna = ["accuracy", "edge_density"], ["kl", "complement_accuracy"]
    return bool((mine[ioi] == rows["IOI"][ioi]).all() and (mine[dna] == rows["DNA ia"][dna]).all())


NAMES = (*BLIMP, "IOI")


def repeated() -> bool:
    def same(row: str, column: str) -> bool:
        return len({cell(MAIN, task=t, row=row, column=column) for t in ("DNA a", "DNA ia")}) == 1

    cases = [("discogp", "kl"), ("discogp", "complement_accuracy")]
    return all(same(*case) for case in [*cases, ("weight_pruning", "complement_accuracy")])


def original_differs() -> bool:
    alone = {t: cell("tab:composition", task=t, row="original") for t in BLIMP}
    main = {t: cell(MAIN, task=t, row="discogp", column="accuracy") for t in BLIMP}
    return all(alone[task] != main[task] for task in BLIMP)


def below_the_abstract() -> bool:
    found = cells(MAIN, row="discogp", column="weight_density").set_index("task")["value"]
    few = found[found < cell("text", column="density_lowest")]
    return set(few.index) == {"DNA", "DNA i", "DNA a", "DNA ia"} and few.max() == 0.52


def sizes(kind: str, a: str, b: str) -> tuple[float, float]:
    """Union, and sum of the two sizes, that a row of the overlap table implies."""
    shared = cell("tab:overlap", task=a, row=b, column=f"{kind}s_shared")
    union = 100 * shared / cell("tab:overlap", task=a, row=b, column=f"{kind}_overlap")
    return union, union + shared


def density(task: str, kind: str) -> float:
    return cell(MAIN, task=task, row="discogp", column=f"{kind}_density") / 100


def overlap_of_other_graphs() -> bool:
    totals = [
        sizes("edge", a, b)[1] / (density(a, "edge") + density(b, "edge")) for a, b in PAPER_PAIRS
    ]
    return [round(f(totals), -2) for f in (min, max)] == [25_700, 51_500]


def negative_weights() -> bool:
    sums = {pair: sizes("weight", *pair)[1] for pair in PAPER_PAIRS[:3]}
    aga_dna, ana_dna, ana_aga = sums.values()
    return round((aga_dna + ana_dna - ana_aga) / 2) == -159_072


def too_many_weights() -> bool:
    found = []
    for a, b in PAPER_PAIRS[3:]:
        at_most = (density(a, "weight") + density(b, "weight")) * GPT2_WEIGHTS
        found.append(at_most < 610_000 < 1_450_000 < sizes("weight", a, b)[0] < 1_600_000)
    return all(found)


def raw_counts_are_uneven() -> bool:
    graph = Graph(n_layers=12, n_heads=12, n_kv_heads=12)
    pairs = [edge.split("->") for edge in graph.edges]
    into_heads = sum(a[0] == "m" and b.startswith("a11.") for a, b in pairs)
    into_mlp = sum(a[0] == "a" and b == "m11" for a, b in pairs)
    return (graph.n_edges, into_heads, into_mlp) == (GPT2_EDGES, 396, 144)


def anaphors_share_what_chance_gives() -> bool:
    a, b = (round(density(t, "weight") * GPT2_WEIGHTS) for t in ("ANA", "AGA"))
    shared = cell("tab:overlap", task="ANA", row="AGA", column="weights_shared")
    expected = shared_by_chance(GPT2_WEIGHTS, a, b).mean
    return round(expected, -2) == 18_300 and shared < expected


ARITHMETIC = {
    "complement-swapped": swapped,
    "mean-truncated": truncated,
    "training-accuracy": training_accuracy,
    "not-best-everywhere": not_best_everywhere,
    "tie-in-bold": ties_in_bold,
    "spliced-row": spliced,
    "repeated-cells": repeated,
    "original-differs": original_differs,
    "abstract-densities": below_the_abstract,
    "overlap-edges": overlap_of_other_graphs,
    "overlap-weights-negative": negative_weights,
    "overlap-weights-too-many": too_many_weights,
    "not-normalised": raw_counts_are_uneven,
    "no-seed-control": anaphors_share_what_chance_gives,
}
IN_BOLD = {"bold-not-best", "best-not-bold"}  # test_bold_is_best_but_where_it_is_said_not_to


@pytest.mark.parametrize("name", ARITHMETIC)
def test_the_paper_contradicts_itself(name: str) -> None:
    assert ARITHMETIC[name]()


def test_what_arithmetic_shows_is_shown() -> None:
    table = paper.inconsistencies()
    shown = set(table["id"][table["shown_by"] == "arithmetic"])
    assert shown == {*ARITHMETIC, *IN_BOLD}
    assert set(table["shown_by"]) == {"arithmetic", "data", "code", "text"}


def test_every_contradiction_concerns_a_cell_or_a_claim() -> None:
    cited = {name for claim in claims.claims() for name in claim.inconsistencies}
    for row in paper.inconsistencies().to_dict("records"):
        reason = row["reason"]
        if row["concerns"] == "value":
            flagged = NUMBERS["inconsistent"].str.contains(reason, regex=False)
            assert flagged.any(), row["id"]
        elif row["concerns"] == "":
            assert row["id"] in cited, row["id"]
    assert cited <= set(paper.inconsistencies()["id"])


# -- the claims ------------------------------------------------------------------------------


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
    chance = {**dict.fromkeys(NAMES, 0.5), **dict.fromkeys(FACTS, 0.1)}  # noqa: RUF012
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
    assert "2 of 19" in found.evidence


def test_a_baseline_that_was_not_run_on_the_task_gives_no_verdict() -> None:
    values = rivals(0.95, 0.9)
    values["acdc"] = {"P36": 0.1}
    found = JUDGES["best_accuracy"](records("accuracy", values))
    assert found.verdict == Verdict.NOT_RUN
    assert found.value is None


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


def test_a_task_without_known_chance_is_left_out() -> None:
    told = records("complement_balanced_accuracy", {"discogp": {"P36": 0.9}})
    told.chance = {"AGA": 0.5}
    assert JUDGES["complement_near_chance"](told).verdict == Verdict.NOT_RUN


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


# -- numbers beside numbers --------------------------------------------------------------------


@given(st.floats(0, 100), st.floats(0, 100), st.none() | st.floats(0, 5))
def test_comparison_of_a_number(printed: float, value: float, half: float | None) -> None:
    ends = (None, None) if half is None else (value - half, value + half)
    verdict = compare("accuracy", printed, Interval(value, *ends))
    if abs(value - printed) > 2:
        assert verdict == Verdict.NOT_REPRODUCED
    elif half is None or ends[0] <= printed <= ends[1]:
        assert verdict == Verdict.REPRODUCED
    else:
        assert verdict == Verdict.WITHIN_TOLERANCE


def test_interval_over_seeds() -> None:
    assert interval(pd.Series([0.5])) == Interval(0.5, None, None)
    value, low, high = interval(pd.Series([1.0, 2.0, 3.0]))
    assert (value, low, high) == (2.0, pytest.approx(-0.484, abs=1e-3), pytest.approx(4.484, 1e-3))


class Perfect(MeasuredEvidence):
    """Measured what the paper printed, to the digit."""

    chance = PaperEvidence.chance
    compositions = PaperEvidence().compositions
    cosines = PaperEvidence().cosines
    overlaps = PaperEvidence().overlaps
    records = paper.as_records()
    records["kl_paper"] = records["kl"]


def test_the_paper_s_numbers_reproduce_the_paper() -> None:
    table = claims.numbers_table(Perfect("paper"))
    chosen = table[table["table"] != "tab:pararel-relations"]
    flagged = chosen["why"] != ""
    assert (chosen["verdict"][~flagged] == Verdict.REPRODUCED).all()
    assert (chosen["verdict"][flagged] == Verdict.INCONSISTENT).all()
    assert len(table) == len(NUMBERS[NUMBERS["table"] != "text"])
    other = Perfect("paper")
    other.model = "mini"
    verdicts = claims.numbers_table(other)["verdict"]
    assert set(verdicts) == {Verdict.INCONSISTENT, Verdict.OTHER_MODEL}


# -- from a run store --------------------------------------------------------------------------

AGA, DNA = "blimp/anaphor_gender_agreement", "blimp/determiner_noun_agreement_1"

QUICK = Profile(
    name="quick",
    model="mini",
    tasks=(AGA, DNA),
    methods=("discogp",),
    seeds=(0, 1),
    search=SearchConfig(
        steps=2, evaluate_every=2, batch_size=4, dev_prompts=8, weight_logit=1.0, edge_logit=1.0
    ),
    variant_tasks=(),
    about="a test",
)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setitem(profiles.PROFILES, "quick", QUICK)
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    monkeypatch.setattr(evidence_module, "RESULTS", tmp_path)
    return tmp_path


def test_an_empty_store_has_no_evidence(store: Path) -> None:
    measured = MeasuredEvidence("quick")
    assert set(claims.claims_table(measured)["verdict"]) == {Verdict.NOT_RUN, Verdict.INCONSISTENT}
    assert claims.numbers_table(measured)["measured"].isna().all()


def test_a_store_is_judged_by_its_runs(store: Path) -> None:
    wanted = ((AGA, 0), (AGA, 1), (DNA, 0))
    found = [compute(Run("quick", task, "discogp", seed), progress=False) for task, seed in wanted]
    measured = MeasuredEvidence("quick")
    table = claims.claims_table(measured).set_index("id")
    shares = [run.test["accuracy"] / run.test["full_accuracy"] for run in found]
    by_seed = ((shares[0] + shares[2]) / 2, shares[1])
    assert table.loc["keeps-performance", "value"] == pytest.approx(sum(by_seed) / 2)
    assert "2 of 19 task(s), seed(s) 0, 1" in table.loc["keeps-performance", "evidence"]
    assert table.loc["best-accuracy", "verdict"] == Verdict.NOT_RUN
    assert table.loc["control-overlap-seeds", "verdict"] != Verdict.NOT_RUN
    numbers = claims.numbers_table(measured)
    mine = numbers[(numbers["table"] == MAIN) & (numbers["task"] == "AGA")]
    mine = mine[(mine["row"] == "discogp") & (mine["column"] == "accuracy")]
    accuracy = [100 * run.test["accuracy"] for run in found[:2]]
    assert mine["measured"].item() == pytest.approx(sum(accuracy) / 2)
    overlap = numbers[(numbers["column"] == "edges_shared") & (numbers["row"] == "DNA")]
    assert overlap["measured"].iloc[0] == (found[0].sheaf() & found[2].sheaf()).kept_edges


def test_summary_and_short_table(store: Path) -> None:
    table = claims.claims_table(MeasuredEvidence("quick"))
    assert claims.counts(table)["n"].sum() == len(table) == len(claims.claims())
    text = claims.readme_table(["quick"]).splitlines()
    headlines = [claim for claim in claims.claims() if claim.headline]
    assert text[0] == "| claim | `quick` |"
    assert len(text) == 2 + len(headlines)
    assert all(claim.claim in line for claim, line in zip(headlines, text[2:], strict=True))
