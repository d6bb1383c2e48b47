"""Rows of the scorecard as tests try them."""

from helpers.processes import run_python
from reliability.rows import ROWS


def check_rows(*names: str) -> None:
    """Try rows in a process of their own: trials fork, and a test process must not be forked."""
    chosen = (part for name in names for part in ("--only", name))
    said = run_python("-m", "reliability", "--pr", *chosen)
    assert said.splitlines() == [f"{name}: {ROWS[name].pr} seen, 0 failures" for name in names]
