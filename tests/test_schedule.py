"""What comes first, and how long the rest will take."""

import pytest

from discogp_lib import schedule
from discogp_lib.runs import Run
from discogp_lib.schedule import Agenda, Outcome, cost, matched_run, told_left

METHODS = ("discogp", "weight_pruning", "acdc", "eap", "magnitude")
RUNS = [Run("mini", task, m, 0) for m in METHODS for task in ("pararel/P36", "ioi")]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> set[Run]:
    """The runs that the store is said to have."""
    runs: set[Run] = set()
    monkeypatch.setattr(schedule, "must_be_computed", lambda run: run not in runs)
    return runs


def named(runs: list[Run]) -> list[str]:
    return [f"{run.task.removeprefix('pararel/')} {run.method}" for run in runs]


def test_the_longest_chain_comes_first(stored: set[Run]):
    agenda = Agenda(RUNS)
    assert named(agenda.ready()) == [
        "ioi discogp",
        "P36 discogp",
        "ioi weight_pruning",
        "P36 weight_pruning",
    ]
    first = agenda.ready()[0]
    agenda.start([first])
    assert named(agenda.ready())[0] == "P36 discogp"
    assert agenda.end(Outcome(first, None, 8.0)) == [Outcome(first, None, 8.0)]
    # ACDC on IOI takes longer than all else: it starts before the other task's DiscoGP is done.
    assert named(agenda.ready())[:2] == ["ioi acdc", "P36 discogp"]
    assert "P36 acdc" not in named(agenda.ready())


def test_the_run_that_is_matched_is_added(stored: set[Run]):
    wanted = [Run("mini", "ioi", method, 3) for method in ("acdc", "eap")]
    agenda = Agenda(wanted)
    assert agenda.runs == [matched_run(wanted[0]), *wanted]
    assert agenda.ready() == [Run("mini", "ioi", "discogp", 3)]


def test_what_needs_a_failed_run_fails(stored: set[Run]):
    agenda = Agenda(RUNS)
    first = Run("mini", "ioi", "discogp", 0)
    agenda.start([first])
    ended = agenda.end(Outcome(first, "no luck", 1.0))
    assert named([outcome.run for outcome in ended]) == [
        "ioi discogp",
        "ioi acdc",
        "ioi eap",
        "ioi magnitude",
    ]
    assert ended[1].error == "it needs ioi discogp seed 0, which failed"
    assert agenda.progress == "[4/10]"
    assert agenda.unfinished


def test_runs_of_the_store_are_looked_up_first_and_not_counted(stored: set[Run]):
    stored |= {run for run in RUNS if run.method in ("discogp", "magnitude")}
    agenda = Agenda(RUNS)
    assert set(agenda.ready()[:2]) == {r for r in RUNS if r.method == "discogp"}
    for run in RUNS[:2]:
        agenda.start([run])
        agenda.end(Outcome(run, None, 0.1, computed=False))
    assert agenda.progress == "[0/6]"
    assert agenda.seconds_left(1) is None  # looking things up says nothing about computing


def test_a_run_whose_match_is_new_is_new(stored: set[Run]):
    stored |= {run for run in RUNS if run.method != "discogp"}
    assert {run.method for run in Agenda(RUNS).new} == {"discogp", "acdc", "eap", "magnitude"}


def test_the_estimate_weighs_by_method_and_by_what_was_measured(stored: set[Run]):
    agenda = Agenda(RUNS)
    first = Run("mini", "ioi", "discogp", 0)
    agenda.start([first])
    agenda.end(Outcome(first, None, 10.0))
    pace = 10.0 / cost(first)
    units = sum(cost(run) for run in RUNS if run != first)
    assert agenda.seconds_left(1) == pytest.approx(pace * units)
    assert agenda.seconds_left(2) == pytest.approx(pace * units / 2)
    acdc = Run("mini", "ioi", "acdc", 0)
    agenda.start([acdc])
    agenda.end(Outcome(acdc, None, 1.0))
    assert agenda.seconds_left(1) < pace * (units - cost(acdc))
    # Many workers cannot end before the longest run.
    longest = max(cost(run) for run in RUNS if run not in (first, acdc)) * 11.0
    assert agenda.seconds_left(100) == pytest.approx(longest / (cost(first) + cost(acdc)))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, ""), (0.0, ""), (3.0, "5 s"), (64.0, "65 s"), (600.0, "10 min"), (9e3, "2.5 h")],
)
def test_estimates_in_words(seconds: float | None, words: str):
    assert told_left(seconds) == (f", about {words} left" if words else "")
