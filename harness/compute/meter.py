"""The meter: what was sampled and computed so far, by kind of work, in exact integers.

It promises totals that only grow and that survive a checkpoint, and rows since the last drain for the
ledger. Which kinds are charged is the study's choice, asked for at each reading; time is the clock's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.compute.kinds import KINDS, Currency, Kind


@dataclass(frozen=True)
class Counts:
    """Amounts of one kind of work; they add up field by field."""

    samples: int = 0
    """Completions sampled, truncated and aborted ones included."""
    generated_tokens: int = 0
    """Sampled tokens, end tokens included; never padding, never the prompt."""
    prefill_tokens: int = 0
    """Prompt and prefix tokens of the requests, computed or not."""
    cached_prefill_tokens: int = 0
    """Those of `prefill_tokens` that were not computed, since another request shared them."""
    flops: int = 0
    """Model FLOPs (compute/flops.py)."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.samples + other.samples,
            self.generated_tokens + other.generated_tokens,
            self.prefill_tokens + other.prefill_tokens,
            self.cached_prefill_tokens + other.cached_prefill_tokens,
            self.flops + other.flops,
        )

    def __sub__(self, other: Counts) -> Counts:
        return Counts(**{name: amount - getattr(other, name) for name, amount in asdict(self).items()})

    def record(self) -> dict[str, int]:
        """The fields by name: a row of the ledger's payload (events/schema.py)."""
        return asdict(self)


Rows = dict[Kind, Counts]


class Meter:
    """Cumulative counts by kind, on the path that led to the weights in memory."""

    def __init__(self) -> None:
        self._total: Rows = {}
        self._lost: Rows = {}
        self._pending: Rows = {}

    def add(self, kind: Kind, counts: Counts) -> None:
        """Books work that was done."""
        for rows in (self._total, self._pending):
            rows[kind] = rows.get(kind, Counts()) + counts

    def move(self, kind: Kind, to: Kind, counts: Counts) -> None:
        """Books work of this step that turned out to be of another kind; it must not have been drained yet."""
        for rows in (self._total, self._pending):
            rows[kind] = rows[kind] - counts
            rows[to] = rows.get(to, Counts()) + counts
        if self._pending[kind] == Counts():
            del self._pending[kind]

    def pending(self, kind: Kind) -> Counts:
        """Work of one kind since the last drain."""
        return self._pending.get(kind, Counts())

    def total(self, kind: Kind) -> Counts:
        """All work of one kind so far."""
        return self._total.get(kind, Counts())

    def drain(self) -> Rows:
        """The work booked since the last drain, in the order of KINDS: the rows of one ledger line."""
        rows, self._pending = self._pending, {}
        return _in_order(rows)

    def charge(self, currency: Currency, charged_kinds: Collection[Kind], lost: bool = True) -> int:
        """Cumulative charge in `generated_tokens` or `flops`; updates and hours are not metered here.

        `lost`: with what `carry_lost` carried.
        """
        if currency not in ("generated_tokens", "flops"):
            raise ValueError(f"the meter does not count {currency}")
        return sum(
            getattr(counts, currency)
            for rows in ((self._total, self._lost) if lost else (self._total,))
            for kind, counts in rows.items()
            if kind in charged_kinds
        )

    def carry_lost(self, rows: Mapping[Kind, Counts]) -> None:
        """Charges work that was lost by the run's own fault (*algorithmic*, too); no part of `total` or `state`.

        All of it at once: whoever goes on from a checkpoint recounts it from the logs (events/costs.py).
        """
        self._lost = dict(rows)

    def state(self) -> dict[str, Any]:
        """JSON values for a checkpoint."""
        return {"total": _as_json(self._total), "pending": _as_json(self._pending)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes over a checkpoint's `state`; what was counted before is dropped."""
        self._total = {kind: Counts(**counts) for kind, counts in state["total"].items()}
        self._pending = {kind: Counts(**counts) for kind, counts in state["pending"].items()}


def _in_order(rows: Rows) -> Rows:
    return {kind: rows[kind] for kind in KINDS if kind in rows}


def _as_json(rows: Rows) -> dict[str, dict[str, int]]:
    return {kind: counts.record() for kind, counts in _in_order(rows).items()}
