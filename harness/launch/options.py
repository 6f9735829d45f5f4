"""What a sweep is told, apart from its plan."""

from __future__ import annotations

from dataclasses import dataclass

from harness.train.lease import STALE_AFTER_SECONDS


@dataclass(frozen=True)
class LaunchFacts:
    """Under which promise cells are launched: recorded with every sweep and, through launch.json, every attempt."""

    mode: str
    """confirmatory | exploratory | reproduction | replication."""
    mode_reason: str
    lock_hash: str | None
    code_commit: str | None
    code_dirty: bool


@dataclass(frozen=True)
class SweepOptions:
    """Choices of whoever starts a sweep. None of them changes a result."""

    retry_failed: bool = False
    """Launch cells again that failed."""
    stop_on_failure: bool = False
    """Launch nothing more once a cell has failed."""
    allow_code_change: bool = False
    """Go on when the code changes during the sweep; the study's log tells of it, and later cells are exploratory."""
    max_fruitless_launches: int = 3
    """A cell whose worker dies so often in a row without a new update counts as failed."""
    poll_seconds: float = 0.5
    """Between two looks at what runs."""
    stale_after_seconds: float = STALE_AFTER_SECONDS
    """See lease.py."""
