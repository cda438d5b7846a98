"""Verdicts, and what leads to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pandas as pd

from discogp_lib.report import over_seeds


class Verdict(StrEnum):
    """What became of a claim or a number of the paper."""

    REPRODUCED = "reproduced"
    WITHIN_TOLERANCE = "within tolerance"
    NOT_REPRODUCED = "not reproduced"
    OTHER_MODEL = "cannot be compared (other model)"
    NOT_RUN = "not run"
    INCONSISTENT = "inconsistent in the paper"


@dataclass(frozen=True)
class Judgement:
    """A verdict with what was measured and from what."""

    verdict: Verdict
    measured: str = ""
    """What was found, in words and numbers."""
    evidence: str = ""
    """The runs or the table that it was found in."""
    coverage: str = ""
    """How much of what the claim is about has been measured, such as "5 of 19 tasks"; empty where
    it is all."""
    quantity: str = ""
    """The one number that the verdict hangs on most."""
    value: float | None = None
    """Its mean over seeds."""
    low: float | None = None
    """Its 95 % interval over seeds, where there are several."""
    high: float | None = None


def part(n: int, of: int, what: str) -> str:
    """A coverage."""
    return "" if n >= of else f"{n} of {of} {what}"


def not_run(missing: str) -> Judgement:
    """No verdict, because something has not been measured."""
    return Judgement(Verdict.NOT_RUN, evidence=f"missing: {missing}")


def decide(holds: bool | np.bool, nearly: bool | np.bool = False) -> Verdict:
    """The verdict on a claim that holds, holds within the tolerance of its rule, or does not."""
    if holds:
        return Verdict.REPRODUCED
    return Verdict.WITHIN_TOLERANCE if nearly else Verdict.NOT_REPRODUCED


class Interval(NamedTuple):
    """A mean over seeds with the ends of its 95 % interval, None with one seed."""

    value: float
    low: float | None
    high: float | None


def intervals(by_seed: Mapping[int, pd.Series]) -> dict[int, Interval]:
    """Mean and 95 % interval over seeds of many things at once, under their numbers."""
    if not by_seed:
        return {}
    values = pd.concat(by_seed, names=["short_name"]).rename("value").reset_index("short_name")
    table = over_seeds(values.assign(method="all"), ["value"]).set_index("short_name")
    ends = table[["value_low", "value_high"]].astype(object).where(table["value_low"].notna(), None)
    return {
        key: Interval(float(table["value"][key]), *ends.loc[key].tolist()) for key in table.index
    }


def interval(by_seed: pd.Series) -> Interval:
    """Mean and 95 % interval over seeds."""
    return intervals({0: by_seed})[0]


def direction(
    quantity: str, by_seed: pd.Series, measured: str, evidence: str, coverage: str = ""
) -> Judgement:
    """Judge that something is above zero: in every seed, or within tolerance only on average."""
    holds, nearly = bool((by_seed > 0).all()), float(by_seed.mean()) > 0
    verdict = decide(holds, nearly)
    return Judgement(verdict, measured, evidence, coverage, quantity, *interval(by_seed))
