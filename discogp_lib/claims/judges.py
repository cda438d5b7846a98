"""The judges by name, as `paper/claims.csv` names them."""

from __future__ import annotations

from collections.abc import Callable

from discogp_lib.claims import controls, findings, performance
from discogp_lib.claims.evidence import Evidence
from discogp_lib.claims.paper import Claim, why_inconsistent
from discogp_lib.claims.verdicts import Judgement, Verdict, not_run

JUDGES: dict[str, Callable[[Evidence], Judgement]] = {
    judge.__name__: judge for module in (performance, findings, controls) for judge in module.JUDGES
}

ON_THE_TEXT = "text"
"""Instead of a judge, where no measurement can decide: data, code or text contradict the claim."""
UNMEASURED = "unmeasured"
"""Instead of a judge, where neither the paper nor this project has measured it."""


def judge(claim: Claim, evidence: Evidence) -> Judgement:
    """What the evidence says about a claim."""
    if claim.judge == ON_THE_TEXT:
        return Judgement(Verdict.INCONSISTENT, why_inconsistent(claim), "the paper, data and code")
    if claim.judge == UNMEASURED:
        return not_run(why_inconsistent(claim))
    return JUDGES[claim.judge](evidence)
