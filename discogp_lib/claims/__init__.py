"""Every number and claim of the paper, and the verdict on it."""

from discogp_lib.claims.comparison import numbers_table
from discogp_lib.claims.evidence import MeasuredEvidence, PaperEvidence
from discogp_lib.claims.paper import Claim, claims, inconsistencies, numbers
from discogp_lib.claims.tables import claims_table, counts, readme_table
from discogp_lib.claims.verdicts import Judgement, Verdict

__all__ = [
    "Claim",
    "Judgement",
    "MeasuredEvidence",
    "PaperEvidence",
    "Verdict",
    "claims",
    "claims_table",
    "counts",
    "inconsistencies",
    "numbers",
    "numbers_table",
    "readme_table",
]
