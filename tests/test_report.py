"""Which runs a profile asks for, and what is said of those that are missing."""

from dataclasses import replace

import pytest

from discogp_lib import profiles
from discogp_lib.model import load_model
from discogp_lib.report import coverage, paths_frame
from discogp_lib.runs import Record, Run
from discogp_lib.sheaf import Sheaf
from tests.quick import P36, QUICK


@pytest.fixture
def uneven(monkeypatch: pytest.MonkeyPatch) -> profiles.Profile:
    """A profile with more seeds of one task than of the other."""
    profile = replace(QUICK, name="uneven", seeds=(0,), more_seeds={P36: (1, 2)})
    monkeypatch.setitem(profiles.PROFILES, "uneven", profile)
    return profile


def test_coverage_names_what_is_missing_and_nothing_else(uneven):
    any_sheaf = Sheaf.full(load_model("mini"))
    found = {"P36": {0: any_sheaf, 2: any_sheaf}}
    assert coverage(found, "uneven", uneven.tasks) == (
        "2 of 4 runs are in the store; not run: P36 seed 1, P103 seed 0."
    )
    assert coverage(found, "uneven", [P36], [0, 2]) == "2 of 2 runs are in the store."
    missing = coverage(found, "uneven", uneven.tasks, [2])
    assert missing == "1 of 2 runs are in the store; not run: P103 seed 2."


def test_seeds_of_a_profile(uneven):
    assert uneven.all_seeds == (0, 1, 2)
    assert uneven.told_seeds([]) == "1 seed(s), 3 of P36"
    assert uneven.told_seeds([7]) == "1 seed(s)"
    assert QUICK.told_seeds([]) == "2 seed(s)"


def test_the_ways_of_searches_have_a_row_per_look():
    looks = [{"step": 15.0, "dev_accuracy": 1.0}, {"step": 30.0, "dev_accuracy": 0.9}]
    records = [
        Record(Run("uneven", P36, "discogp", seed), {"found": {"curve": looks}}) for seed in (0, 1)
    ]
    frame = paths_frame(records)
    assert list(frame["seed"]) == [0, 0, 1, 1]
    assert list(frame["dev_accuracy"]) == [1.0, 0.9] * 2
    assert set(frame["task"]) == {"P36"}
    assert set(frame["method"]) == {"discogp"}
