"""The claims of the papers' abstracts, judged by the rows of the record."""

from torchcaps.results.claims.published import CLAIMS as CLAIMS
from torchcaps.results.claims.verdicts import (
    Claim as Claim,
    Evidence as Evidence,
    Verdict as Verdict,
)
