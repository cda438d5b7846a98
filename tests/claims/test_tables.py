"""The evidence of a run store, and the paper's numbers beside it."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib import claims, profiles, runs
from discogp_lib.claims import evidence as evidence_module
from discogp_lib.claims import paper
from discogp_lib.claims.comparison import compare
from discogp_lib.claims.evidence import MeasuredEvidence, PaperEvidence
from discogp_lib.claims.judges import JUDGES
from discogp_lib.claims.verdicts import Interval, Verdict, interval
from discogp_lib.config import SearchConfig
from discogp_lib.profiles import Profile
from discogp_lib.runs import Run, compute

NUMBERS = paper.numbers()
MAIN = paper.MAIN_TABLE


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
    compute(Run("quick", AGA, "discogp@shuffled", 0), progress=False)
    measured = MeasuredEvidence("quick")
    table = claims.claims_table(measured).set_index("id")
    shares = [run.test["accuracy"] / run.test["full_accuracy"] for run in found]
    by_seed = ((shares[0] + shares[2]) / 2, shares[1])
    assert table.loc["keeps-performance", "value"] == pytest.approx(sum(by_seed) / 2)
    assert table.loc["keeps-performance", "evidence"].endswith("2 task(s), seed(s) 0, 1")
    assert table.loc["keeps-performance", "coverage"] == "2 of 19 tasks"
    assert table.loc["best-accuracy", "verdict"] == Verdict.NOT_RUN
    assert table.loc["control-shuffled", "coverage"] == "1 of 19 tasks"
    assert table.loc["control-overlap-seeds", "verdict"] != Verdict.NOT_RUN
    numbers = claims.numbers_table(measured)
    mine = numbers[(numbers["table"] == MAIN) & (numbers["task"] == "AGA")]
    mine = mine[(mine["row"] == "discogp") & (mine["column"] == "accuracy")]
    accuracy = [100 * run.test["accuracy"] for run in found[:2]]
    assert mine["measured"].item() == pytest.approx(sum(accuracy) / 2)
    overlap = numbers[(numbers["column"] == "edges_shared") & (numbers["row"] == "DNA")]
    assert overlap["measured"].iloc[0] == (found[0].sheaf() & found[2].sheaf()).kept_edges


def test_tables_of_other_notebooks_are_evidence(store: Path) -> None:
    folder = store / "quick" / "tables"
    folder.mkdir(parents=True)
    unions = [(0, "AGA", "DNA", 2, 0.9, 0.8, 1.0), (0, "AGA", "DNA + IOI", 3, 0.1, 0.8, 1.0)]
    columns = ["seed", "task", "joined", "size", "composed", "matched", "original"]
    table = pd.DataFrame(unions, columns=columns)
    table.to_csv(folder / "composition_by_seed.csv", index=False)
    cosines = [("all", "IOI", 0.9, 0.8, 0.2), ("last", "IOI", 0.1, 0.8, 0.2)]
    columns = ["tokens", "task", "mean", "interchange", "random"]
    pd.DataFrame(cosines, columns=columns).to_csv(folder / "similarity.csv", index=False)
    answers = {"relation": ["P36"], "queries": [20], "answers": [4]}
    pd.DataFrame(answers).to_csv(folder / "pararel_relations.csv", index=False)
    measured = MeasuredEvidence("quick")
    found = {name: JUDGES[name](measured) for name in JUDGES}
    assert found["composition_in_range"].value == 0.9
    assert found["composition_beats_random"].value == pytest.approx(0.1)
    assert found["ablated_values_stay_similar"].verdict == Verdict.REPRODUCED
    assert found["interchange_is_most_similar"].verdict == Verdict.NOT_REPRODUCED
    assert (measured.chance["P36"], measured.chance["AGA"]) == (0.25, 0.5)
    numbers = claims.numbers_table(measured).set_index(["table", "task", "row", "column"])
    value = numbers["measured"]
    assert value["tab:composition", "AGA", "DNA", "accuracy"] == 90
    assert value["tab:edge-intervene-sim", "IOI", "", "mean"] == 0.9
    assert value["tab:pararel-relations", "P36", "", "queries"] == 20


def test_summary_and_short_table(store: Path) -> None:
    table = claims.claims_table(MeasuredEvidence("quick"))
    assert claims.counts(table)["n"].sum() == len(table) == len(claims.claims())
    folder = store / "quick/tables"
    assert "not run" in claims.readme_table(["quick"])
    folder.mkdir(parents=True, exist_ok=True)
    table.assign(verdict="reproduced", coverage="2 of 3 tasks").to_csv(folder / "claims.csv")
    text = claims.readme_table(["quick"]).splitlines()
    headlines = [claim for claim in claims.claims() if claim.headline]
    assert text[0] == "| claim | `quick` |"
    assert len(text) == 2 + len(headlines)
    assert all(claim.claim in line for claim, line in zip(headlines, text[2:], strict=True))
    assert all("reproduced (2 of 3 tasks)" in line for line in text[2:])
