"""The claims table of a profile, its summary, and the short one of the README."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pandas as pd

from discogp_lib.claims.evidence import Evidence, MeasuredEvidence, PaperEvidence
from discogp_lib.claims.judges import ON_THE_TEXT, UNMEASURED, judge
from discogp_lib.claims.paper import Claim, claims, why_inconsistent
from discogp_lib.claims.verdicts import Verdict
from discogp_lib.tables import to_markdown


def claims_table(evidence: Evidence) -> pd.DataFrame:
    """One row per claim.

    Columns: `id`, `section`, `claim`, `verdict`, `measured`, `quantity` (the number that decides
    most), `value`, `low`, `high` (its mean and 95 % interval over seeds), `evidence`,
    `coverage` (how much of what the claim is about has been measured, empty if all), `rule`,
    `the paper's own tables` (the same rule on what the paper printed) and `inconsistent` (what
    contradicts the claim).
    """
    rows = []
    for claim in claims():
        found = judge(claim, evidence)
        rows.append(
            {
                "id": claim.id,
                "section": claim.section,
                "claim": claim.claim,
                "verdict": found.verdict.value,
                "measured": found.measured,
                "quantity": found.quantity,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "evidence": found.evidence,
                "coverage": found.coverage,
                "rule": claim.rule,
                "the paper's own tables": _in_the_paper(claim),
                "inconsistent": why_inconsistent(claim),
            }
        )
    table = pd.DataFrame(rows)
    return table.astype(dict.fromkeys(("value", "low", "high"), float))


PRINTED = PaperEvidence()

IN_THE_PAPER = {
    Verdict.REPRODUCED: "hold",
    Verdict.WITHIN_TOLERANCE: "hold within tolerance",
    Verdict.NOT_REPRODUCED: "do not hold",
    Verdict.NOT_RUN: "",
}
"""What a verdict on the paper's own tables is called."""


@cache
def _in_the_paper(claim: Claim) -> str:
    """What the claim's rule says of the paper's tables, empty where they cannot tell."""
    if claim.judge in (ON_THE_TEXT, UNMEASURED):
        return ""
    found = judge(claim, PRINTED)
    told = IN_THE_PAPER[found.verdict]
    return f"{told}: {found.measured}" if told else ""


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """How many rows of a claims or numbers table have each verdict, all verdicts listed."""
    found = table["verdict"].value_counts()
    return pd.DataFrame(
        {"verdict": [v.value for v in Verdict], "n": [int(found.get(v.value, 0)) for v in Verdict]}
    )


def readme_table(profiles: Sequence[str] = ("mini", "smollm2")) -> str:
    """The headline claims in Markdown: what the claims table of each profile says of them."""
    headlines = [claim for claim in claims() if claim.headline]
    table = pd.DataFrame({"claim": [claim.claim for claim in headlines]})
    for profile in profiles:
        told = _told(profile)
        table[f"`{profile}`"] = [told.get(claim.id, Verdict.NOT_RUN.value) for claim in headlines]
    return to_markdown(table)


def _told(profile: str) -> dict[str, str]:
    """By claim: the verdict of a profile's written table, and on how much it rests."""
    written = MeasuredEvidence(profile).table("claims")
    if written is None:
        return {}
    rests = ("" if pd.isna(coverage) else f" ({coverage})" for coverage in written["coverage"])
    return dict(zip(written["id"], written["verdict"].add(list(rests)), strict=True))
