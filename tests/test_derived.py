"""A table beside a run is made once, and again when what it was made from has changed."""

import pandas as pd
import pytest

from discogp_lib import runs
from discogp_lib.derived import derived
from discogp_lib.runs import Run

RUN = Run("smoke", "ioi", "acdc", 0)
TABLE = pd.DataFrame({"size": [0.1, 0.2], "name": ["a", "b"], "missing": [None, 1.5]})


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)


def never() -> pd.DataFrame:
    raise AssertionError("computed again")


def test_made_once_for_the_same_inputs():
    first = derived(RUN, "curve", {"seed": 0}, lambda: TABLE)
    pd.testing.assert_frame_equal(first, derived(RUN, "curve", {"seed": 0}, never))
    pd.testing.assert_frame_equal(first[["size", "name"]], TABLE[["size", "name"]])


def test_made_again_for_others_and_when_damaged():
    derived(RUN, "curve", {"seed": 0}, lambda: TABLE)
    with pytest.raises(AssertionError, match="again"):
        derived(RUN, "curve", {"seed": 1}, never)
    path = RUN.folder / "curve.json"
    path.write_text(path.read_text()[:20])
    assert len(derived(RUN, "curve", {"seed": 0}, lambda: TABLE)) == 2
    assert len(derived(RUN, "curve", {"seed": 0}, never)) == 2


def test_a_failure_leaves_nothing():
    with pytest.raises(AssertionError):
        derived(RUN, "curve", {}, never)
    assert not list(RUN.folder.glob("*.json"))
    assert not list(RUN.folder.glob("*.part"))
